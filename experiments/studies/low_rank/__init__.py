"""Federated low-rank matrix estimation: Yuan, Zaheer and Reddi (ICML 2021), section 5.2."""

from experiments.report.plots import Panel
from experiments.studies.low_rank import claims
from experiments.study import Sweep, from_config, on_kernel
from fcojax.problems import low_rank
from fcojax.transforms import nuclear
from fcojax.types import NonNegative

EXPERIMENT = Sweep(
    title="Low-rank matrix estimation: recovery of a matrix of rank 16",
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
    remarks=(
        "The best client rate is the smallest of any grid. Along a constant product of both rates, "
        "the step of a round, the error falls with the client rate, because clients drift less, "
        "and ever more slowly: with a product of 0.003 and a strength of 0.2, FedDualAvg's from "
        "0.583 at 0.003 over 0.5585, 0.5507 to 0.5485 at 0.0001, and FedMiD-OSP's from 0.644 over "
        "0.585, 0.568 to 0.564. In the end clients are asked for one gradient step.\n\n"
        "FedMiD-OSP is as fast in loss because both are within 1.05 of the optimum at the same "
        "evaluation, one every ten rounds. With half the penalty the optimum itself has rank 20: "
        "none of FedDualAvg, FedMiD and FedMiD-OSP reaches rank 16, and none is slower."
    ),
)
