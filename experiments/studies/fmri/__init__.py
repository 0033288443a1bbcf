"""Faces against houses from brain scans: Yuan, Zaheer and Reddi (ICML 2021), section 5.3."""

import math
from typing import Literal

from experiments.report.plots import Panel
from experiments.studies.fmri import claims, figures, problem
from experiments.study import Sweep, mirror_descent
from fcojax.types import Count, CountOrZero, NonNegative, Real

EXPERIMENT = Sweep(
    title="Faces against houses: sparse logistic regression on fMRI scans",
    problem=problem.problem,
    penalty=problem.penalty,
    panels=(
        Panel("objective", r"objective $F + \psi$", log=True),
        Panel("accuracy", "accuracy on held-out scans"),
        Panel("validation_loss", "loss on held-out scans", log=True),
        Panel("density", "share of nonzero weights", log=True),
    ),
    # Proximal gradient descent on minibatches, as in the authors' code.
    algorithms={"centralized": mirror_descent, "local": mirror_descent},
    plans={"centralized": problem.centralized, "local": problem.local},
    keys={
        Count: "grid[3] sessions[2+] num_voxels centralized_epochs centralized_batch",
        CountOrZero: "held_out local_client",
        NonNegative: "cuts",
        Real: "start_scale",
        Literal["slice", "wholebrain_25mm"]: "view",
        Literal["l1", "grid_variation"]: "penalty",
    },
    requires={
        "num_voxels within the grid": lambda own: own.num_voxels <= math.prod(own.grid),
    },
    claims=claims.claims,
    figures=figures.draw,
    solve_optimum=False,  # with 39,912 weights the optimum takes longer than all runs together
)
