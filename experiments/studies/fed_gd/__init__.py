"""FedGD and Local SGD: the limits of local steps, and a theorem's bound."""

from typing import Literal

from experiments.studies.fed_gd import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

EXPERIMENT = Study(
    title="FedGD and Local SGD on heterogeneous clients",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    x64=True,
    keys={
        Literal["ridge", "logistic"]: "sgd_problems",
        Count: "sizes dim many_steps[3+] simulated_steps num_rounds heterogeneity_steps "
        "sgd_num_steps sgd_total_steps sgd_seeds sgd_evaluations",
        CountOrZero: "data_seed instances",
        Positive: "step_shares near_limit concentration",
        NonNegative: "distances[2+] spreads[2+]",
        str: "data_dir",
    },
    requires={
        "step_shares below 2, for which steps are stable": lambda own: max(own.step_shares) < 2,
        "near_limit below 1": lambda own: own.near_limit < 1,
        "sgd_evaluations of at least 2": lambda own: own.sgd_evaluations > 1,
        "sgd_total_steps of at least sgd_num_steps": lambda own: (
            own.sgd_total_steps >= max(own.sgd_num_steps)
        ),
    },
)
