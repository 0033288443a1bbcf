"""Statistical recovery: Bao, Crawshaw, Luo and Liu (ICML 2022), section 6 and the authors' code."""

from typing import Literal

from experiments.report.plots import Panel
from experiments.studies.recovery import claims, problem
from experiments.study import Sweep, on_kernel
from fcojax.transforms import l1, l1_ball, named, nuclear, nuclear_ball, on_subtree
from fcojax.types import NonNegative, Positive

_L1_BALL = on_subtree(l1_ball(), named("kernel"))
_NUCLEAR_BALL = on_subtree(nuclear_ball(), named("kernel"))

LASSO = Sweep(
    title="Sparse recovery: distance to the true weights",
    problem=problem.sparse,
    penalty=on_kernel(l1()),
    algorithms=problem.methods((4.0, 2.0, 1.0), _L1_BALL),
    panels=(
        Panel("error", "distance to the true weights", log=True),
        Panel("f1", "F1 score of the support"),
        Panel("density", "share of nonzero weights"),
        Panel("loss", "training loss", log=True),
    ),
    keys={NonNegative: "cuts", Positive: "target_error"},
    claims=claims.recovery,
    solve_optimum=False,
)

LOW_RANK = Sweep(
    title="Low-rank recovery: distance to the true matrix",
    problem=problem.matrices,
    penalty=on_kernel(nuclear()),
    algorithms=problem.methods((3.0, 1.5, 1.0), _NUCLEAR_BALL),
    panels=(
        Panel("error", "Frobenius distance to the true matrix", log=True),
        Panel("rank", "rank (singular values above 0.01)", whole=True),
        Panel("loss", "training loss", log=True),
        Panel("validation_loss", "loss on validation", log=True),
    ),
    keys={NonNegative: "cuts", Positive: "target_error"},
    claims=claims.recovery,
    solve_optimum=False,
)

DIGITS = Sweep(
    title="Digits by writer with an l1 norm",
    problem=problem.digits,
    penalty=on_kernel(l1()),
    algorithms=problem.methods((4.0, 2.0, 1.0, 1.0, 1.0), _L1_BALL),
    panels=(
        Panel("loss", "training loss", early=True),
        Panel("validation_loss", "loss on held-out examples", early=True),
        Panel("accuracy", "accuracy on held-out examples", early=True),
        Panel("density", "share of nonzero weights", early=True),
    ),
    keys={NonNegative: "cuts", str: "features", Literal[False, True]: "unseen_writers"},
    claims=claims.digits,
    solve_optimum=False,
)
