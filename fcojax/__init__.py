"""Federated composite optimisation in JAX.

min_w (1/M) sum_m p_m F_m(w) + psi(w): many clients with local losses, one shared penalty,
constraint or manifold.
"""

from fcojax import algorithms, problems, theory, transforms
from fcojax.algorithms.local import local_epochs, local_steps
from fcojax.engine import reference
from fcojax.engine.cohort import coin_flips, everyone, uniform_cohort
from fcojax.engine.ragged import padded_share
from fcojax.engine.run import run
from fcojax.engine.sharding import client_mesh, shard_clients, spread_clients
from fcojax.engine.sweep import sweep
from fcojax.problems.clients import (
    ClientData,
    from_clients,
    from_column,
    from_rows,
    open_clients,
)

__version__ = "0.1.0"

__all__ = [
    "ClientData",
    "algorithms",
    "client_mesh",
    "coin_flips",
    "everyone",
    "from_clients",
    "from_column",
    "from_rows",
    "local_epochs",
    "local_steps",
    "open_clients",
    "padded_share",
    "problems",
    "reference",
    "run",
    "shard_clients",
    "spread_clients",
    "sweep",
    "theory",
    "transforms",
    "uniform_cohort",
]
