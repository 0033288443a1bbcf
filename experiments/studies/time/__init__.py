"""Simulated time to a goal, and the bias of unequal participation."""

from typing import Literal

from experiments.studies.time import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

EXPERIMENT = Study(
    title="Simulated time, and clients that are often there",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
    captions={
        "time": "Simulated seconds until the relative suboptimality is 1e-3, at the best client "
        "rate of each seed; a cross marks runs that never get there.",
        "bias": "Distance of FedAvg's last model to the minimiser, relative to its norm, by law of "
        "participation and weights of the uploads.",
    },
    keys={
        Literal[*rows.METHODS]: "methods",
        Literal[*rows.SERVERS]: "servers",
        Literal[*rows.SPEEDS]: "speeds",
        Literal[*rows.PARTICIPATIONS]: "participations",
        Count: "num_steps num_rounds eval_every buffer bias_rounds own.num_clients "
        "own.num_examples own.dim own.num_true",
        CountOrZero: "seeds",
        Positive: "client_lr patience",
        NonNegative: "penalty_scale",
    },
    requires={
        "eval_every that divides num_rounds": lambda c: c.num_rounds % c.eval_every == 0,
        "buffer that divides num_clients": lambda c: c.own.num_clients % c.buffer == 0,
    },
    printed=("times",),
)
