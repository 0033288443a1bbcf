"""Statistical recovery: Bao, Crawshaw, Luo and Liu (ICML 2022), section 6 and the authors' code."""

from experiments.report.plots import Panel
from experiments.studies.recovery import claims
from experiments.studies.recovery.problem import digits, matrices, methods, sparse
from experiments.study import Sweep, on_kernel
from fcojax.transforms import l1, l1_ball, named, nuclear, nuclear_ball, on_subtree
from fcojax.types import NonNegative, Positive


def _sweep(title, problem, penalty, factors, ball, panels, claims):
    return Sweep(
        title=title,
        problem=problem,
        penalty=on_kernel(penalty),
        algorithms=methods(factors, on_subtree(ball, named("kernel"))),
        panels=panels,
        claims=claims,
        keys={NonNegative: "cuts", Positive: "target_error"},
        solve_optimum=False,
    )


LASSO = _sweep(
    "Sparse recovery: distance to the true weights",
    sparse,
    l1(),
    (4.0, 2.0, 1.0),
    l1_ball(),
    (
        Panel("error", "distance to the true weights", log=True),
        Panel("f1", "F1 score of the support"),
        Panel("density", "share of nonzero weights"),
        Panel("loss", "training loss", log=True),
    ),
    claims.recovery,
)
LOW_RANK = _sweep(
    "Low-rank recovery: distance to the true matrix",
    matrices,
    nuclear(),
    (3.0, 1.5, 1.0),
    nuclear_ball(),
    (
        Panel("error", "Frobenius distance to the true matrix", log=True),
        Panel("rank", "rank (singular values above 0.01)", whole=True),
        Panel("loss", "training loss", log=True),
        Panel("validation_loss", "loss on validation", log=True),
    ),
    claims.recovery,
)
DIGITS = _sweep(
    "Digits by writer with an l1 norm",
    digits,
    l1(),
    (4.0, 2.0, 1.0, 1.0, 1.0),
    l1_ball(),
    (
        Panel("loss", "training loss", early=True),
        Panel("validation_loss", "loss on held-out examples", early=True),
        Panel("accuracy", "accuracy on held-out examples", early=True),
        Panel("density", "share of nonzero weights", early=True),
    ),
    claims.digits,
)
