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
