"""Every algorithm that takes a penalty, on a heterogeneous lasso, beside proximal gradient."""

from typing import Literal

from experiments.studies.compare import claims, rows
from experiments.studies.compare.methods import METHODS
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

EXPERIMENT = Study(
    title="All algorithms on heterogeneous lassos",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=rows.draw,
    printed=("exchanges; thousands of floats",),
    x64=True,
    keys={
        Literal["own", "shared", "own_groups", "shared_groups"]: "problems",
        Literal[*METHODS]: "methods",
        Count: "num_clients dim group_size limit_rounds own_limit_rounds.* *.num_examples "
        "*.num_rounds *.num_steps",
        CountOrZero: "seeds data_seed num_true",
        Positive: "tolerance tolerances limit_prox_step step_factors prox_factors server_lr "
        "*.spectrum[2]",
        NonNegative: "*.spread *.scale",
    },
)
