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
    remarks=(
        "On MNIST by digit the local rate is set by the largest eigenvalue of any digit, 71.6, and "
        "the gap between the fifth and the sixth of the mean is 0.51: with ten steps a round the "
        "gradient falls by 0.984 a round and is at 1.09e-5 after 500, hence 20 steps."
    ),
    remarked=({"data_dir": ..., "num_rounds": 250, "num_steps": 20, "seeds": (0, 1, 2)},),
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
        "num_components below dim": lambda own: (
            own.data_dir or own.num_components < own.dim
        ),
    },
)  # fmt: skip
