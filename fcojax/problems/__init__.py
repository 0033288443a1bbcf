"""What is minimised: losses, populations, and the problems of the sources."""

from fcojax.problems.clients import ClientData, from_clients, from_rows
from fcojax.problems.fused_signal import fused_signal
from fcojax.problems.lasso import lasso
from fcojax.problems.least_squares import least_squares, synthetic_least_squares
from fcojax.problems.logistic import logistic, synthetic_logistic
from fcojax.problems.measures import support_recovery
from fcojax.problems.problem import Problem, population_loss
from fcojax.problems.random_features import random_features
from fcojax.problems.softmax import softmax, synthetic_softmax

__all__ = [
    "ClientData",
    "Problem",
    "from_clients",
    "from_rows",
    "fused_signal",
    "lasso",
    "least_squares",
    "logistic",
    "population_loss",
    "random_features",
    "softmax",
    "support_recovery",
    "synthetic_least_squares",
    "synthetic_logistic",
    "synthetic_softmax",
]
