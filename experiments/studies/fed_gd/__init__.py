"""FedGD and Local SGD: where local steps lead, and what a theorem promises."""

from typing import Literal

from experiments.studies.fed_gd import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share

EXPERIMENT = Study(
    title="FedGD and Local SGD on heterogeneous clients",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    x64=True,
    keys={
        Literal["ridge", "logistic"]: "sgd_problems",
        Count: "sizes dim many_steps simulated_steps num_rounds heterogeneity_steps sgd_num_steps "
        "sgd_total_steps sgd_seeds sgd_evaluations",
        CountOrZero: "data_seed instances",
        Positive: "step_shares",
        Share: "near_limit",
        NonNegative: "distances spreads",
    },
)  # fmt: skip
