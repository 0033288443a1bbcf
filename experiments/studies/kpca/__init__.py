"""Principal components on the Stiefel manifold: Zhang, Hu, So and Johansson (NeurIPS 2024)."""

from typing import Literal

from experiments.studies.kpca import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share

EXPERIMENT = Study(
    title=figures.TITLE,
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    x64=True,
    keys={
        Literal[rows.METHODS]: "algorithms",
        Count: "num_clients num_components num_steps num_rounds eval_every crowd_batch "
        "num_examples dim step_counts[0+] crowds[0+]",
        Share: "batch_shares[0+]",
        CountOrZero: "seeds data_seed",
        Positive: "relative_lr server_lr server_relative_lr tolerance",
        NonNegative: "relative_prox",
        str: "data_dir",
    },
    requires={
        "num_components below dim": lambda own: own.data_dir or own.num_components < own.dim,
    },
)
