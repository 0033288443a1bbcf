"""Problems: populations of clients, losses, and the problems of the papers."""

from fcojax.problems import partition
from fcojax.problems.client_data import ClientData
from fcojax.problems.condensed import condensed
from fcojax.problems.features import feature_skew, quadratic_features, random_features
from fcojax.problems.fmri import brain_voxels, fmri_surrogate, on_grid
from fcojax.problems.hold_out import hold_out_examples
from fcojax.problems.least_squares import least_squares
from fcojax.problems.linear_models import (
    huber_regression,
    linear,
    poisson,
    quantile_regression,
    squared_hinge,
)
from fcojax.problems.logistic import logistic
from fcojax.problems.loss_kinds import LinearLoss, RandomLoss, WholeBatchLoss
from fcojax.problems.matrix_completion import matrix_completion
from fcojax.problems.measures import client_means, identified
from fcojax.problems.pca import pca
from fcojax.problems.planted import (
    lasso,
    low_rank,
    synthetic_least_squares,
    synthetic_matrix_completion,
    synthetic_pca,
    synthetic_softmax,
)
from fcojax.problems.problem import Problem, population_loss
from fcojax.problems.products import with_products
from fcojax.problems.quadratic import factored, factored_loss
from fcojax.problems.saddle import bilinear, saddle
from fcojax.problems.softmax import softmax
from fcojax.problems.sparse import SparseRows, sparse_rows

__all__ = [
    "ClientData",
    "LinearLoss",
    "Problem",
    "RandomLoss",
    "SparseRows",
    "WholeBatchLoss",
    "bilinear",
    "brain_voxels",
    "client_means",
    "condensed",
    "factored",
    "factored_loss",
    "feature_skew",
    "fmri_surrogate",
    "hold_out_examples",
    "huber_regression",
    "identified",
    "lasso",
    "least_squares",
    "linear",
    "logistic",
    "low_rank",
    "matrix_completion",
    "on_grid",
    "partition",
    "pca",
    "poisson",
    "population_loss",
    "quadratic_features",
    "quantile_regression",
    "random_features",
    "saddle",
    "softmax",
    "sparse_rows",
    "squared_hinge",
    "synthetic_least_squares",
    "synthetic_matrix_completion",
    "synthetic_pca",
    "synthetic_softmax",
    "with_products",
]
