"""What is minimised: losses, populations, and the problems of the sources."""

from fcojax.problems.clients import (
    ClientData,
    check_labels,
    from_clients,
    from_column,
    from_rows,
    open_clients,
)
from fcojax.problems.hold_out import (
    check_same_clients,
    check_unseen_clients,
    hold_out_clients,
    hold_out_examples,
)
from fcojax.problems.lasso import lasso
from fcojax.problems.measures import support_recovery
from fcojax.problems.problem import Problem, population_loss

__all__ = [
    "ClientData",
    "Problem",
    "check_labels",
    "check_same_clients",
    "check_unseen_clients",
    "from_clients",
    "from_column",
    "from_rows",
    "hold_out_clients",
    "hold_out_examples",
    "lasso",
    "open_clients",
    "population_loss",
    "support_recovery",
]
