"""Personalised methods at equal tuning budgets: supports, scores of every client, worst tenth."""

from typing import Literal

from experiments.studies.personal import claims, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

EXPERIMENT = Study(
    title="A model for each client",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
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
