"""Federated composite optimisation in JAX.

min_w (1/M) sum_m p_m F_m(w) + psi(w): many clients with local losses, one shared penalty,
constraint or manifold.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fcojax import algorithms, problems, selection, theory, transforms
from fcojax.algorithms.work import local_epochs, local_steps
from fcojax.engine import reference
from fcojax.engine.availability import cyclic, markov
from fcojax.engine.certificates import kkt, kkt_violation
from fcojax.engine.cohort import coin_flips, dropout, everyone, uniform_cohort, weighted_cohort
from fcojax.engine.grid import log_spaced, product, random_draws, zipped
from fcojax.engine.hparams import extended, schedule
from fcojax.engine.outliers import norm_bound, norm_quantile
from fcojax.engine.plan import Plan
from fcojax.engine.ragged import padded_share
from fcojax.engine.run import run
from fcojax.engine.sharding import client_mesh, device_mesh, shard_clients, spread
from fcojax.engine.solve import solve
from fcojax.engine.state import OfState, State
from fcojax.engine.stepper import advance, look, read_model, start
from fcojax.engine.stream import Stream
from fcojax.engine.sweep import sweep
from fcojax.engine.trace import from_trace
from fcojax.engine.tuning import fastest_chunk_size
from fcojax.engine.uplink import Uplink
from fcojax.problems.clients import ClientData, from_clients, from_rows, open_clients
from fcojax.selection.path import path
from fcojax.selection.select import select

if TYPE_CHECKING:
    from fcojax import check

__version__ = "0.2.0"

__all__ = [
    "ClientData",
    "OfState",
    "Plan",
    "State",
    "Stream",
    "Uplink",
    "advance",
    "extended",
    "look",
    "read_model",
    "schedule",
    "start",
    "algorithms",
    "check",
    "client_mesh",
    "device_mesh",
    "log_spaced",
    "product",
    "random_draws",
    "zipped",
    "coin_flips",
    "cyclic",
    "dropout",
    "everyone",
    "fastest_chunk_size",
    "from_clients",
    "from_rows",
    "from_trace",
    "kkt",
    "kkt_violation",
    "local_epochs",
    "local_steps",
    "markov",
    "norm_bound",
    "norm_quantile",
    "open_clients",
    "padded_share",
    "path",
    "problems",
    "reference",
    "run",
    "select",
    "selection",
    "shard_clients",
    "solve",
    "spread",
    "sweep",
    "theory",
    "transforms",
    "uniform_cohort",
    "weighted_cohort",
]


def __getattr__(name: str) -> Any:
    if name == "check":  # which most programs never need
        return importlib.import_module("fcojax.check")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
