"""Composite saddle points: Bai and Bullins (ICLR 2024), section 6."""

from typing import Literal

from experiments.studies.saddle import claims, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

EXPERIMENT = Study(
    title="Bilinear saddle points: duality gap and structure",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=rows.draw,
    keys={
        Literal["vectors", "matrices"]: "cases",
        Literal[*rows.METHODS]: "*.methods",
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
