"""What is minimised: losses, populations, and the problems of the sources.

``fcojax.problems.networks`` is imported when it is first asked for, because Flax takes a second.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fcojax.problems import loaders, partition
from fcojax.problems.bilinear import bilinear
from fcojax.problems.clients import ClientData, from_clients, from_rows, open_clients
from fcojax.problems.cox import cox
from fcojax.problems.feature_skew import feature_skew
from fcojax.problems.fmri import brain_voxels, fmri_surrogate, on_grid
from fcojax.problems.fused_signal import fused_signal
from fcojax.problems.hold_out import (
    check_same_clients,
    check_unseen_clients,
    hold_out_clients,
    hold_out_examples,
)
from fcojax.problems.lasso import lasso
from fcojax.problems.least_squares import least_squares, synthetic_least_squares
from fcojax.problems.linear_models import (
    huber_regression,
    linear,
    poisson,
    poisson_loss,
    quantile_regression,
    squared_hinge,
)
from fcojax.problems.logistic import logistic, logistic_loss, synthetic_logistic
from fcojax.problems.low_rank import low_rank
from fcojax.problems.matrix_completion import matrix_completion, synthetic_matrix_completion
from fcojax.problems.measures import support_recovery
from fcojax.problems.pca import pca, synthetic_pca
from fcojax.problems.portfolio import mixture, portfolio, simplex_weights
from fcojax.problems.problem import (
    Problem,
    RandomLoss,
    Summary,
    WholeBatchLoss,
    population_loss,
)
from fcojax.problems.procrustes import procrustes, synthetic_procrustes
from fcojax.problems.quadratic import Factored, factored, factored_loss
from fcojax.problems.random_features import random_features
from fcojax.problems.saddle import saddle
from fcojax.problems.softmax import softmax, synthetic_softmax
from fcojax.problems.sparse import SparseRows, sparse_rows
from fcojax.problems.subspace_completion import (
    as_columns,
    subspace_completion,
    synthetic_subspace_completion,
)

if TYPE_CHECKING:
    from fcojax.problems import networks

__all__ = [
    "ClientData",
    "Factored",
    "Problem",
    "RandomLoss",
    "SparseRows",
    "Summary",
    "WholeBatchLoss",
    "check_same_clients",
    "check_unseen_clients",
    "feature_skew",
    "factored",
    "factored_loss",
    "as_columns",
    "bilinear",
    "cox",
    "brain_voxels",
    "fmri_surrogate",
    "from_clients",
    "from_rows",
    "fused_signal",
    "hold_out_clients",
    "hold_out_examples",
    "huber_regression",
    "lasso",
    "open_clients",
    "partition",
    "least_squares",
    "linear",
    "loaders",
    "logistic",
    "logistic_loss",
    "low_rank",
    "matrix_completion",
    "mixture",
    "networks",
    "on_grid",
    "pca",
    "poisson",
    "poisson_loss",
    "population_loss",
    "portfolio",
    "procrustes",
    "quantile_regression",
    "random_features",
    "saddle",
    "simplex_weights",
    "softmax",
    "sparse_rows",
    "squared_hinge",
    "subspace_completion",
    "support_recovery",
    "synthetic_least_squares",
    "synthetic_logistic",
    "synthetic_matrix_completion",
    "synthetic_pca",
    "synthetic_procrustes",
    "synthetic_softmax",
    "synthetic_subspace_completion",
]


def __getattr__(name: str) -> Any:
    if name == "networks":
        return importlib.import_module("fcojax.problems.networks")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
