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
    remarks=(
        "FedDualAvg needs 3.2 times the rounds with the largest tenth: with EF21 it is best at a "
        "third of the step of whole uploads, the other two with EF14 at half of it. In 20 "
        "dimensions an upload has its number of steps, 8 bytes, beside the 18 of two entries, so a "
        "few bits of every entry save more than leaving entries out. A first full run had steps up "
        "to 5.7 times the safe one, where whole uploads were at the edge of the grid; no claim was "
        "changed, and none has another outcome."
    ),
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
