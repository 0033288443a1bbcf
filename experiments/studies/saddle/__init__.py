"""Composite saddle points: Bai and Bullins (ICLR 2024), section 6."""

from typing import Literal

from experiments.studies.saddle import claims, figures, rows
from experiments.studies.saddle.methods import METHODS
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

EXPERIMENT = Study(
    title="Bilinear saddle points: duality gap and structure",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    remarks=(
        "FedMiP as printed ends at a gap of 1.2 and 1.7, and with the prox on clients only at 0.04 "
        "and 0.07; the source does not state which variant it used. FedDualAvg with ten steps ends "
        "at 0.13, but above 1 in the source, because of its rates: each method has the best of six "
        "pairs, and after a quarter of the rounds FedDualAvg has a gap of 0.29 at (0.03, 0.3) and "
        "of 1.05 to 4.1 at the other five. On matrices FeDualEx has both ranks at 10 and a gap of "
        "0.004 from round 100 with K = 1 and from round 10 with K = 10; FedDualAvg follows at "
        "rounds 160 and 14, and FedMiP stays at 20 with a gap of 0.39. At the end the first two "
        "differ by one per cent; the largest client rate of the grid is best for both."
    ),
    figures=figures.draw,
    keys={
        Literal["vectors", "matrices"]: "cases",
        Literal[*METHODS]: "*.methods",
        Count: "num_examples shape[2] num_evaluations *.num_clients *.num_steps *.num_rounds "
        "*.tuning_share",
        CountOrZero: "seeds data_seed *.num_columns",
        Positive: "bound *.client_lr *.server_lr",
        NonNegative: "strength noise_scale",
    },
    requires={
        f"as many {case}.num_rounds as {case}.num_steps": lambda own, case=case: (
            len(own[case].num_rounds) == len(own[case].num_steps)
        )
        for case in ("vectors", "matrices")
    },
)
