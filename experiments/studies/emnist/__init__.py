"""Digits by writer under a constraint: Yuan, Zaheer and Reddi (ICML 2021), appendix B.5."""

from experiments.report.plots import Panel
from experiments.studies.emnist import claims, problem
from experiments.study import Sweep

EXPERIMENT = Sweep(
    title="Digits by writer, every dense kernel in a ball",
    problem=problem.problem,
    penalty=problem.penalty,
    panels=(
        Panel("loss", "training loss", log=True),
        Panel("accuracy", "accuracy on validation"),
        Panel("validation_loss", "loss on validation", log=True),
        Panel("violation", "excess over the radius, share of it"),
    ),
    claims=claims.claims,
    solve_optimum=False,  # on 60,000 images it takes longer than all runs together
)
