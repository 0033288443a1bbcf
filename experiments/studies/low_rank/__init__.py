"""Federated low-rank matrix estimation: Yuan, Zaheer and Reddi (ICML 2021), section 5.2."""

from experiments.report.plots import Panel
from experiments.studies.low_rank import claims
from experiments.study import Sweep, from_config, on_kernel
from fcojax.problems import low_rank
from fcojax.transforms import nuclear
from fcojax.types import NonNegative

EXPERIMENT = Sweep(
    title="Low-rank matrix estimation: recovery of a planted matrix",
    problem=lambda config: from_config(
        low_rank, config, shape=(config.side, config.side), seed=config.data_seed
    ),
    penalty=on_kernel(nuclear()),
    panels=(
        Panel("objective", r"objective $F + \psi$", log=True),
        Panel("validation_loss", "mean squared error on validation", log=True),
        Panel("rank", "rank (singular values above 0.01)", whole=True),
        Panel("error_fro", "Frobenius distance to the true matrix", log=True),
    ),
    keys={NonNegative: "cuts"},
    claims=claims.claims,
)
