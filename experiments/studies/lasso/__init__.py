"""The federated LASSO of Yuan, Zaheer and Reddi (ICML 2021)."""

from typing import Literal

from experiments.report.plots import Panel
from experiments.studies.lasso import claims, strength
from experiments.studies.lasso.methods import METHODS, PLANS
from experiments.study import Sweep
from fcojax.types import NonNegative, Positive

EXPERIMENT = Sweep(
    title="Federated LASSO: recovery of the true support",
    problem=strength.problem,
    penalty=strength.penalty,
    strengths=strength.strengths,
    panels=(
        Panel("f1", "F1 score of the support", early=True),
        Panel("precision", "precision of the support", early=True),
        Panel("recall", "recall of the support", early=True),
        Panel("density", "share of nonzero weights", early=True),
        Panel("objective", r"objective $F + \psi$", log=True, early=True),
    ),
    algorithms=METHODS,
    plans=PLANS,
    keys={
        NonNegative: "cuts",
        Positive: "candidates",
        Literal["typed", "validation", "pattern"]: "strength",
        Literal["l1", "decreasing"]: "penalty",
    },
    claims=claims.claims,
)
