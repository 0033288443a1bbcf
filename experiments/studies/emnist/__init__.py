"""Digits by writer under a constraint: Yuan, Zaheer and Reddi (ICML 2021), appendix B.5."""

from typing import Literal

from experiments.studies.emnist import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share

EXPERIMENT = Study(
    title="Digits by writer, every dense kernel in a ball",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    keys={
        Literal[*rows.ALGORITHMS]: "algorithms",
        Literal["softmax", "mlp", "cnn"]: "models",
        Literal["l1", "l2"]: "constraints",
        Count: "num_clients dim cohort_size num_epochs batch_size eval_every criterion_rounds "
        "num_hidden cnn_filters cnn_hidden softmax.num_rounds mlp.num_rounds cnn.num_rounds",
        Count | None: "point_chunk_size",
        CountOrZero: "seeds data_seed",
        Share: "share_of_writers",
        NonNegative: "cut",
        Positive: "softmax.client_lr softmax.server_lr softmax.radii.l1 softmax.radii.l2 "
        "mlp.client_lr mlp.server_lr mlp.radii.l1 mlp.radii.l2 cnn.client_lr cnn.server_lr "
        "cnn.radii.l1 cnn.radii.l2",
        str: "data_dir",
    },
)  # fmt: skip
