"""Types of a user's algorithm; ``pyright`` checks this file, and nothing runs it.

Each ``ignore`` marks an error that must be found: pyright reports unnecessary ones.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms import (
    Algorithm,
    ClientResult,
    fed_avg,
    fed_dyn,
    fed_opt,
    mean_gradient,
    takes,
)
from fcojax.transforms import l1
from fcojax.types import Positive


class Rates(NamedTuple):
    client_lr: Positive = 0.01


class Decaying(NamedTuple):
    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    decay: Positive = 0.1


@takes(Rates)
def mine(loss) -> Algorithm:
    """Its functions have other names for their arguments."""
    gradient = mean_gradient(loss)

    def init(rates: Rates, start):
        return start, ()

    def broadcast(rates: Rates, model):
        return model

    def client_update(rates: Rates, received, memory, handle, seed):
        def step(w, batch):
            return tree.add_scaled(w, -rates.client_lr, gradient(w, batch))

        return ClientResult(memory, tree.sub(handle.scan(step, received), received), {})

    def server_update(rates: Rates, model, mean, share, seed):
        return tree.add(model, mean)

    def read(rates: Rates, model):
        return model

    return Algorithm(init, broadcast, client_update, server_update, read)


def half_squared_error(w, rows):
    return (rows["x"] @ w - rows["y"]) ** 2 / 2


def misspelt_rates():
    mine.Hparams(client_rl=0.1)  # pyright: ignore[reportCallIssue]
    mine(half_squared_error).hparams_type(client_rl=0.1)  # pyright: ignore[reportCallIssue]
    fed_avg.Hparams(client_rl=0.1)  # pyright: ignore[reportCallIssue]
    fed_dyn(half_squared_error, l1()).hparams_type(prox_stp=1.0)  # pyright: ignore[reportCallIssue]
    return fed_avg.Hparams().client_rl  # pyright: ignore[reportAttributeAccessIssue]


def well_spelt_rates():
    mine(half_squared_error).hparams_type(client_lr=jnp.array(0.1))
    fed_dyn.Hparams(client_lr=0.1, prox_step=1.0)
    fed_opt(half_squared_error, hparams_type=Decaying).hparams_type(decay=0.5)


def an_argument_too_many():
    def init(rates, start, more):
        return start, more

    rest = fed_avg(half_squared_error)[1:5]
    return Algorithm(init, *rest)  # pyright: ignore[reportArgumentType]
