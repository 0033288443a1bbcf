"""Ratings completed by a matrix of low nuclear norm, with groups of users as clients."""

from experiments.report.plots import Panel
from experiments.studies.matrix_completion import claims, problem
from experiments.study import Sweep
from fcojax.types import Count, NonNegative

EXPERIMENT = Sweep(
    title="Matrix completion by the nuclear norm",
    problem=problem.problem,
    penalty=problem.penalty,
    panels=(
        Panel("objective", r"objective $F + \psi$", log=True),
        Panel("loss", "loss F on the observed entries", log=True),
        Panel("rmse", "root mean squared error, held out"),
        Panel("rank", "rank (singular values above 0.01)", whole=True),
    ),
    keys={NonNegative: "cuts", Count: "shape[2] num_users"},
    claims=claims.claims,
    solve_optimum=False,  # single precision does not reach the solver's tolerance on these sums
)
