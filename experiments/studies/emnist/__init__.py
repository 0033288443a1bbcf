"""Digits by writer under a constraint: Yuan, Zaheer and Reddi (ICML 2021), appendix B.5."""

from typing import Literal

from experiments.studies.emnist import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share

MODELS = ("softmax", "klr", "qlr", "mlp", "cnn")

EXPERIMENT = Study(
    title="Digits by writer, every dense kernel in a ball",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    keys={
        Literal[*rows.ALGORITHMS]: "algorithms",
        Literal[MODELS]: "models",
        Literal["l1", "l2"]: "constraints",
        Count: "num_clients dim cohort_size num_epochs batch_size eval_every criterion_rounds "
        "num_hidden num_features cnn_filters cnn_hidden *.num_rounds",
        Count | None: "point_chunk_size",
        CountOrZero: "seeds data_seed",
        Share: "share_of_writers",
        NonNegative: "cut",
        Positive: "*.client_lr *.server_lr *.radii.l1 *.radii.l2",
        str: "data_dir",
    },
    requires={
        "data_dir, or models beside cnn": lambda own: own.data_dir or {*own.models} - {"cnn"},
    }
    | {
        f"{model}.num_rounds that eval_every divides": lambda own, model=model: (
            own[model].num_rounds % own.eval_every == 0
        )
        for model in MODELS
    },
)
