"""What a row of the tables is, and the small federation that its calls are made on."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax import algorithms
from fcojax.types import Scalar


class Odd(NamedTuple):
    """A wrong or odd call: a fragment of the sentence it is refused with, or what it gives."""

    call: Callable[[], Any]
    says: str | None = None
    gives: Any = None


def says(call, fragment):
    return Odd(call, says=fragment)


def gives(call, value):
    return Odd(call, gives=value)


def squares(w, rows):
    return 0.5 * (w - rows["a"]) ** 2


CLIENTS = [{"a": np.array([1.0])}, {"a": np.array([3.0, 3.0])}]
DATA = fcojax.from_clients(CLIENTS)
FED_AVG = algorithms.fed_avg(squares)
RATES = algorithms.fed_avg.Hparams
KEY = jax.random.key(0)
KEYS = jax.random.split(KEY, 2)
ZERO = jnp.zeros(())
STEPS = fcojax.local_steps(1)
GRID = fcojax.product(RATES, client_lr=[0.25, 0.5])


class OwnNumbers(NamedTuple):
    """Hyperparameters of somebody's own algorithm: a vector, a count, and a signed number."""

    client_lr: Scalar = 0.5
    shift: Any = 0.0
    direction: Any = np.zeros(2)
    num_times: Any = 1


def own(**reported):
    """FedAvg that also reports numbers made of its hyperparameters."""

    def client_update(hparams, message, client, local, key):
        result = FED_AVG.client_update(hparams, message, client, local, key)
        metrics = {name: function(hparams) for name, function in reported.items()}
        return result._replace(metrics=metrics)

    def server_update(hparams, server, mean_upload, cohort, key):
        return server + mean_upload

    return FED_AVG._replace(
        client_update=client_update, server_update=server_update, hparams_type=tuple
    )


def ran(**changes):
    """A run of one round of everyone, with changes; its model."""
    return told(**changes)[0]


def told(**changes):
    """The model and the history of a run of one round, with changes."""
    given = {
        "algorithm": FED_AVG, "hparams": RATES(0.5), "params": ZERO, "data": DATA, "key": KEY,
        "plan": STEPS, "num_rounds": 1,
    } | changes  # fmt: skip
    return fcojax.run(**given)


def swept(**changes):
    """The models of a sweep over two rates and two seeds, with changes."""
    given = {
        "algorithm": FED_AVG, "grid": GRID, "params": ZERO, "data": DATA, "keys": KEYS,
        "plan": STEPS, "num_rounds": 1,
    } | changes  # fmt: skip
    return fcojax.sweep(**given)[0]


def begun(**changes):
    given = {
        "algorithm": FED_AVG, "hparams": RATES(0.5), "params": ZERO, "data": DATA, "key": KEY,
        "plan": STEPS,
    } | changes  # fmt: skip
    return fcojax.start(**given)


def gone_on(**changes):
    """The model after one round more, with changes."""
    given = {
        "algorithm": FED_AVG, "hparams": RATES(0.5), "data": DATA, "plan": STEPS, "num_rounds": 1
    } | changes  # fmt: skip
    given["state"] = changes["state"] if "state" in changes else begun()
    state, _ = fcojax.advance(**given)
    return fcojax.read_model(FED_AVG, RATES(0.5), state)


def planned(**changes):
    """The model of a run by a plan with changes."""
    return ran(plan=fcojax.Plan(**({"work": STEPS} | changes)))


def in_float32(call):
    """The same call with float64 switched off."""

    def narrow():
        with jax.enable_x64(False):
            return call()

    return narrow
