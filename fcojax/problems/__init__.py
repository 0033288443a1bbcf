"""What is minimised: losses, populations, and the problems of the sources."""

from fcojax.problems import partition
from fcojax.problems.clients import ClientData, from_clients, from_rows
from fcojax.problems.feature_skew import feature_skew
from fcojax.problems.lasso import lasso
from fcojax.problems.measures import support_recovery
from fcojax.problems.problem import Problem, population_loss

__all__ = [
    "ClientData",
    "Problem",
    "feature_skew",
    "from_clients",
    "from_rows",
    "lasso",
    "partition",
    "population_loss",
    "support_recovery",
]
