"""Personalised methods at equal tuning budgets: supports, scores of every client, worst tenth."""

import itertools
from typing import Literal

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, select
from experiments.studies.personal import rows
from experiments.study import Config, Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

# Written before the run. After a first run the own part in ``partial`` got a larger strength; no
# statement was changed.
STATEMENTS = """
Expected by us
ditto_global | on digits ditto is more accurate than the global model, by 0.01
    | difference | > 0.01
partial_global | on digits partial sharing is more accurate than the global model, by 0.01
    | difference | > 0.01
ditto_local | on digits ditto is more accurate than local models, by 0.01 | difference | > 0.01
partial_local | on digits partial sharing is no less accurate than local models, up to 0.01
    | difference | > -0.01
"""


def claims(config: Config, found: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on digits if they ran; none if the config lacks a method."""
    if set(config.methods) != set(rows.METHODS) or "digits" not in config.tasks:
        return []
    ends = {}
    for name in rows.METHODS:
        own = select(found, task="digits", method=name)
        ends[name] = np.array([np.mean(row["accuracy"]) for row in own])
    pairs = itertools.product(("ditto", "partial"), ("global", "local"))
    return judged(STATEMENTS, {f"{own}_{other}": ends[own] - ends[other] for own, other in pairs})


EXPERIMENT = Study(
    title="A model for each client",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims,
    figures=rows.draw,
    captions={
        "clients": "The score of each client on its test rows at its own model, from the worst "
        "client to the best, in the first seed; where clients differ in size, also its gain "
        "over the model that it learns alone, by its number of training rows, in all seeds. In "
        "the table of methods, a gain is the share of clients with a better score than at the "
        "global model, or at the model that they learn alone; all methods have the same tuning "
        "budget.",
    },
    notes="A client's score is its accuracy, or minus its loss, on its test rows at its own model; "
    "the worst tenth is a mean. Largest F1 is at the strength where that of the method is largest.",
    keys={
        Literal["lasso", "digits"]: "tasks",
        Literal[*rows.METHODS]: "methods",
        Count: "num_rounds num_steps digits.num_clients lasso.dim lasso.num_*",
        CountOrZero: "seeds",
        Positive: "*strength* pulls digits.concentration",
        NonNegative: "lasso.spread lasso.noise lasso.skew",
    },
)
