"""Bytes to a solution: composite methods whose uploads are compressed, with feedback."""

from typing import Literal

from experiments.studies.compress import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

EXPERIMENT = Study(
    title="Compressed uploads on one heterogeneous lasso",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    captions={
        "curves": "Each uplink at its best step: relative distance to the optimum, and F1 of the "
        "support, over the kilobytes that all clients have sent. Dashed: without feedback."
    },
    x64=True,
    keys={
        Literal[*rows.METHODS]: "methods",
        str: "uplinks alone",
        Count: "num_clients dim num_rounds eval_every own.num_examples own.num_steps",
        CountOrZero: "seed data_seed num_true",
        Positive: "step_factors tolerances[2] own.spectrum[2]",
        NonNegative: "own.spread own.scale",
    },
    requires={
        "eval_every a divisor of num_rounds": lambda config: (
            config.num_rounds % config.eval_every == 0
        )
    },
)
