"""Every algorithm that takes a penalty, on one heterogeneous lasso, against proximal gradient."""

from typing import Literal

from experiments.studies.compare import claims, figures, rows
from experiments.studies.compare.methods import METHODS
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

EXPERIMENT = Study(
    title="All algorithms on one heterogeneous lasso",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    remarks=(
        "With server steps of 2 in the grid, composite FL and the normal map need one or two "
        "exchanges fewer than ProxGD if the Hessians differ; with --config.server_lr=1.0 they need "
        "28, and ProxGD 21. A round of MimeSVRG has two exchanges. With shared Hessians it has not "
        "converged after 6,000 rounds of the safe step, which are too few: after 12,000 its "
        "distance is 4.2e-12. FedAvg with subgradients is the only method with a ratio below 1.8: "
        "at its safe step the bias is not yet proportional to the step. From half to a quarter of "
        "this step the ratio is 1.87."
    ),
    figures=figures.draw,
    x64=True,
    keys={
        Literal["own", "shared"]: "problems",
        Literal[*METHODS]: "methods",
        Count: "num_clients dim limit_rounds *.num_examples *.num_rounds *.num_steps",
        CountOrZero: "seeds data_seed num_true",
        Positive: "tolerance limit_prox_step step_factors prox_factors server_lr *.spectrum[2]",
        NonNegative: "*.spread *.scale",
    },
)
