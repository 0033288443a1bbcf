"""What is minimised: losses, populations, and the problems of the sources."""

from fcojax.problems.clients import ClientData, from_clients, from_rows
from fcojax.problems.lasso import lasso
from fcojax.problems.measures import support_recovery
from fcojax.problems.problem import Problem, population_loss
from fcojax.problems.quadratic import Factored, factored, factored_loss

__all__ = [
    "ClientData",
    "Factored",
    "Problem",
    "factored",
    "factored_loss",
    "from_clients",
    "from_rows",
    "lasso",
    "population_loss",
    "support_recovery",
]
