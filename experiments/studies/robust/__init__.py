"""Robust means in composite methods: how far attackers move the end point."""

from typing import Annotated, Any, Literal

from experiments.studies.robust import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Numbers, Positive

_Minority = Annotated[Any, Numbers("a number from 0 to below 1/2", lambda x: (x >= 0) & (x < 0.5))]

EXPERIMENT = Study(
    title="Robust means in composite methods",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    remarks=(
        "The geometric median takes three steps from the weighted mean, which are too few if a "
        "fifth of the weight sends -1,000 times its upload: for 16 points at about 1 and four at "
        "-1,000 it returns -2.9, with 5 steps 0.72, with 8 steps 0.91. Against the attack "
        "little-is-enough no rule is much better than the mean in either method. In composite FL "
        "the attack changes a gradient difference, which the server adds up, and for this reason "
        "its end points are much farther away: if clients send whole gradients and the server adds "
        "up nothing, which without attackers is the same method up to rounding, a fifth of the "
        "weight moves the end points by 0.12 (median), 0.11 (trimmed mean) and 0.08 (geometric "
        "median) instead of 0.80, 0.85 and 0.52."
    ),
    figures=figures.draw,
    captions={
        "robust": "Distance of the end point from that without attackers, relative to its norm and "
        "cut off at a thousand, over the attackers' share of the weight; mean and range over "
        "populations."
    },
    keys={
        Literal[*rows.METHODS]: "methods",
        Literal[*rows.RULES]: "rules",
        Literal[*rows.ATTACKS]: "attacks",
        _Minority: "shares trimmed",
        Count: "num_bad num_steps num_rounds own.num_clients own.num_examples own.dim own.num_true",
        CountOrZero: "seeds",
        Positive: "client_lr",
        NonNegative: "penalty_scale own.bias_scale",
    },
    requires={"num_bad below num_clients": lambda config: config.num_bad < config.own.num_clients},
)
