"""FedMLS: local subgradient steps, with a gap of O(1 / T) after T rounds.

Palenzuela, Dadras, Yurtsever and Löfstedt, "Provable reduction in communication
rounds for non-smooth convex federated learning", MLSP 2025 (arXiv 2503.21627).
A penalty |x_i - x|^2 / (2 lambda_t), lambda_t = lambda_0 / t, holds the models
x_i of n clients together. The server takes accelerated steps; a client solves
its part of a step by K_t = ceil(K_0 t) subgradients. The factors beta_t of the
source appear only in beta_t lambda_t = 4 / t, and in 1 / (n beta_t), which is
lambda_0 / (4 n): here ``client_lr``.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms import (
    Algorithm,
    ClientResult,
    Facts,
    mean_gradient,
    takes,
)
from fcojax.types import Positive


class Hparams(NamedTuple):
    """The weight of a subgradient, lambda_0 / (4 n)."""

    client_lr: Positive = 0.01


class Server(NamedTuple):
    """The model, its extrapolation, the last point, and the round t."""

    params: object
    ahead: object
    last: object
    time: object


class Client(NamedTuple):
    """The client's own model and last point."""

    params: object
    last: object


@takes(Hparams)
def fed_mls(loss):
    """Average subgradient steps at the clients, held together by a penalty."""
    gradient = mean_gradient(loss)

    def mixed(x, y, share):
        return tree.add_scaled(x, share, tree.sub(y, x))

    def init(hparams, params):
        first = jnp.ones((), float)
        return Server(params, params, params, first), Client(params, params)

    def broadcast(hparams, server):
        return server.ahead, server.time

    def client_update(hparams, message, client, local, key):
        (ahead, time), (params, last) = message, client
        own = mixed(params, last, 2 / (time + 1))
        target = tree.add_scaled(last, -time / 4, tree.sub(own, ahead))

        def step(carry, batch):
            u, mean, k = carry
            slope = tree.scale(hparams.client_lr, gradient(u, batch))
            slope = tree.add(slope, tree.sub(u, target))
            u = tree.add_scaled(u, -2 / (k + 2), slope)
            share = (2 * k + 2) / (k * (k + 3))  # one in the first step
            return u, mixed(mean, u, share), k + 1

        start = last, last, jnp.ones_like(time)
        last, mean, _ = local.scan(step, start)
        params = mixed(params, mean, 2 / (time + 1))
        upload = tree.sub(mixed(params, last, 2 / (time + 2)), ahead)
        return ClientResult(Client(params, last), upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        params, ahead, last, time = server
        clients = tree.add(ahead, mean_upload)
        params = mixed(params, last, 2 / (time + 1))
        ahead = mixed(params, last, 2 / (time + 2))
        pulled = tree.add_scaled(
            last, -(time + 1) / 4, tree.sub(ahead, clients)
        )
        return Server(params, ahead, pulled, time + 1)

    def model(hparams, server):
        return server.params

    return Algorithm(
        init,
        broadcast,
        client_update,
        server_update,
        model,
        facts=Facts(needs_everyone=True),
    )
