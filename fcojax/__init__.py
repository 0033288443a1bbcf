"""Federated composite optimisation in JAX.

min_w sum_m p_m F_m(w) / sum_m p_m + psi(w): many clients with local losses, and one shared penalty,
constraint or manifold.
"""

import importlib
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:  # before the others, which take a second
    importlib.import_module("fcojax.starting")

from fcojax import algorithms, devices, grid, problems, transforms
from fcojax.algorithms.work import local_epochs, local_steps
from fcojax.arguments import show_readably as _show_readably
from fcojax.engine.optimality import Status, kkt, kkt_violation
from fcojax.engine.own_hparams import extended, schedule
from fcojax.engine.participation.samplers import (
    coin_flips,
    cyclic,
    everyone,
    from_trace,
    held,
    uniform_cohort,
    weighted_cohort,
)
from fcojax.engine.plan import Draw, Plan, Sampler
from fcojax.engine.run import run, sweep
from fcojax.engine.solve import solve
from fcojax.engine.state import State, StateObserver
from fcojax.engine.stepper import advance, look, read_model, start
from fcojax.engine.stream import Stream
from fcojax.problems.building import from_clients, from_rows
from fcojax.problems.client_data import ClientData
from fcojax.problems.stored import open_clients, save_clients
from fcojax.uploads.contract import Aggregator
from fcojax.uploads.participation import dropout, norm_bound

if TYPE_CHECKING:
    from fcojax import (
        attacks,
        check,
        clock,
        datasets,
        extend,
        networks,
        personal,
        privacy,
        reference,
        robust,
        rows,
        theory,
        uploads,
    )
    from fcojax.bibliography import citation
    from fcojax.rows import to_frame
    from fcojax.strengths import path

__version__ = "0.4.0"

_show_readably(run, sweep, start, advance, look, read_model, Plan, Aggregator)
_show_readably(transforms.Penalty, transforms.Mirror, transforms.Manifold, problems.Problem)

__all__ = [
    # subpackages
    "algorithms",
    "attacks",
    "check",
    "clock",
    "datasets",
    "devices",
    "extend",
    "grid",
    "networks",
    "personal",
    "privacy",
    "problems",
    "reference",
    "robust",
    "rows",
    "theory",
    "transforms",
    "uploads",
    # data
    "ClientData",
    "from_clients",
    "from_rows",
    "open_clients",
    "save_clients",
    # plans: local work, participation, uploads
    "Plan",
    "local_epochs",
    "local_steps",
    "Draw",
    "Sampler",
    "coin_flips",
    "cyclic",
    "everyone",
    "from_trace",
    "held",
    "uniform_cohort",
    "weighted_cohort",
    "dropout",
    "Aggregator",
    "norm_bound",
    # hyperparameters
    "extended",
    "schedule",
    # runs
    "run",
    "sweep",
    "to_frame",
    "solve",
    "Stream",
    "State",
    "StateObserver",
    "Status",
    "start",
    "advance",
    "look",
    "read_model",
    "kkt",
    "kkt_violation",
    "path",
    # sources
    "citation",
]


# Imported on first use, with the packages of __all__ that build on the core.
_FUNCTIONS = {"citation": "bibliography", "path": "strengths", "to_frame": "rows"}
_LEFT = ("estimators", "flower", "safetensors", "select", "selection")


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        found = getattr(importlib.import_module(f"fcojax.{_FUNCTIONS[name]}"), name)
        return globals().setdefault(name, found)
    if name in __all__:
        return importlib.import_module(f"fcojax.{name}")
    if name == "Codec":
        raise AttributeError(
            "fcojax.Codec is fcojax.uploads.UploadTransform since 0.4, for Plan(uploads=...)."
        )
    if name in _LEFT:
        raise AttributeError(
            f"fcojax.{name} is fcojax_sites.{name} since 0.4, of the distribution fcojax-sites; "
            "pip install ./packages/sites in a checkout."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
