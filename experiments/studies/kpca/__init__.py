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
        "On MNIST by digit the gradient is at 1.09e-5 after 500 rounds and still falls, by 0.984 a "
        "round: the local rate is set by the largest eigenvalue of any digit, 71.6, and the gap "
        "between the fifth and the sixth of the mean is 0.51, which with ten steps gives 0.986. By "
        "writer the largest is 45.4. RFedSVRG, exact as well, is at 9.8e-6; 20 steps a round lead "
        "to 1.4e-9, and a server step of sqrt(10) at half the local rate to 1.5e-7."
    ),
    remarked=({"data_dir": ..., "num_rounds": 500},),
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
