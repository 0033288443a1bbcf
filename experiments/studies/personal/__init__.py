"""Personalised methods at equal tuning budgets: supports, scores of every client, worst tenth."""

import functools
from collections.abc import Callable, Mapping
from typing import Literal

from experiments.studies.personal import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share


def experiment(readers: Mapping[str, Callable], c_index: Callable) -> Study:
    """Return the study, with readers of hospitals and regions, and the score of survival times."""
    return Study(
        title="A model for each client",
        rows=functools.partial(rows.study, readers=readers, c_index=c_index),
        summarise=rows.summarise,
        claims=claims.claims,
        figures=figures.draw,
        captions={
            "clients": "The score of each client on its test rows at its own model, from the worst "
            "client to the best, in the first seed; where clients differ in size, also its gain "
            "over the model that it learns alone, by its number of training rows, in all seeds. In "
            "the table of methods, a gain is the share of clients with a better score than at the "
            "global model, or at the model that they learn alone; all methods have the same tuning "
            "budget.",
        },
        notes="A client's score is its accuracy, its C-index, or minus its loss, on its test rows "
        "at its own model; the worst tenth is a mean. Largest F1 is at the strength where that of "
        "the method is largest.",
        keys={
            Literal["lasso", "digits", "heart", "regions"]: "tasks",
            Literal[*rows.METHODS]: "methods",
            str: "data_dir",
            Count: "num_rounds num_steps digits.num_clients lasso.dim lasso.num_*",
            CountOrZero: "seeds",
            Positive: "prox_step *strength* pulls fusions digits.concentration",
            Share: "shares",
            NonNegative: "lasso.spread lasso.noise lasso.skew",
        },
        requires={
            "num_rounds of at least 1, and a data_dir for heart and regions": lambda config: (
                config.data_dir or not {"heart", "regions"} & {*config.tasks}
            ),
        },
    )
