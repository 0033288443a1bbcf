"""Personalised methods at equal tuning budgets: supports, scores of every client, worst tenth."""

import functools
from collections.abc import Callable, Mapping
from typing import Literal

from experiments.studies.personal import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share


def experiment(readers: Mapping[str, Callable]) -> Study:
    """Return the study, with readers of populations of hospitals and regions."""
    return Study(
        title="A model for each client",
        rows=functools.partial(rows.study, readers=readers),
        summarise=rows.summarise,
        claims=claims.claims,
        figures=figures.draw,
        captions={
            "clients": "The score of each client on its test rows at its own model, from the worst "
            "client to the best, in the first seed.",
        },
        notes="A client's score is its accuracy, or minus its loss, on its test rows at its own "
        "model; largest F1 is at the strength where that of the method is largest.",
        keys={
            Literal["lasso", "digits", "heart", "regions"]: "tasks",
            Literal[*rows.METHODS]: "methods",
            str: "data_dir",
            Count: "num_rounds num_steps digits.num_clients lasso.dim lasso.num_*",
            CountOrZero: "seeds",
            Positive: "prox_step strengths few_strengths pulls fusions digits.concentration",
            Share: "shares",
            NonNegative: "lasso.spread lasso.noise lasso.skew",
        },
        requires={
            "num_rounds of at least 1, and a data_dir for heart and regions": lambda config: (
                config.data_dir or not {"heart", "regions"} & {*config.tasks}
            ),
        },
    )
