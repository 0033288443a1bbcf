"""FedFW: Frank-Wolfe, for sets whose vertices are cheaper than a projection.

Dadras, Banerjee, Prakhya and Yurtsever, "Federated Frank-Wolfe algorithm", ECML
PKDD 2024 (arXiv 2408.10090), written from its abstract and from memory. Clients
keep points x_i of a bounded convex set D and send a vertex of D, and the server
keeps the mean x of these points: with s_t = 2 / (t + 1) and t = 1, 2, ...

    g_i = df_i(x_i) + lambda_0 sqrt(t + 1) (x_i - x),
    v_i in argmin over D of <g_i, v>,
    x_i <- x_i + s_t (v_i - x_i),  x <- x + s_t (sum_i p_i v_i - x).

The weight of the distance to x grows, so that the clients agree in the limit;
with everyone x is the mean of the x_i. The gap falls as 1 / sqrt(t). Several
local steps give the mean gradient over their batches, all taken at x_i.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.algorithms import Algorithm, ClientResult, mean_gradient, takes
from fcojax.types import NonNegative


class Hparams(NamedTuple):
    """The number lambda_0, and the radius of the set."""

    pull_scale: NonNegative = 1.0
    penalty_scale: NonNegative = 1.0


class Server(NamedTuple):
    """The mean of the clients' points, and t."""

    point: object
    time: object


def l1_vertex(g, radius):
    """Return -r sign(g_j) e_j for the largest |g_j|, of all leaves together."""
    flat, unravel = ravel_pytree(g)
    steepest = jnp.argmax(jnp.abs(flat))  # a NaN, if there is one
    height = -jnp.where(flat[steepest] == 0, 1, jnp.sign(flat[steepest]))
    height = jnp.asarray(radius, flat.dtype) * height
    return unravel(jnp.zeros_like(flat).at[steepest].set(height))


@takes(Hparams)
def fed_fw(loss, *, vertex=l1_vertex):
    """Minimise over a set that is given by its vertices, (g, radius) -> v."""
    gradient = mean_gradient(loss)

    def step_of(hparams, time):
        return 2 / (time.astype(jnp.asarray(hparams.pull_scale).dtype) + 1)

    def init(hparams, params):
        return Server(params, jnp.ones((), jnp.int32)), params

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        size = step_of(hparams, message.time)

        def add_batch(carry, batch):
            mean, count = carry
            change = tree.sub(gradient(client, batch), mean)
            return tree.add_scaled(mean, 1 / (count + 1), change), count + 1

        nothing = tree.zeros_like(client), jnp.zeros_like(size)
        slope, _ = local.scan(add_batch, nothing)
        pull = hparams.pull_scale * jnp.sqrt(2 / size)
        slope = tree.add_scaled(slope, pull, tree.sub(client, message.point))
        target = vertex(slope, hparams.penalty_scale)
        moved = tree.add_scaled(client, size, tree.sub(target, client))
        return ClientResult(moved, tree.sub(target, message.point), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        size = step_of(hparams, server.time)
        point = tree.add_scaled(server.point, size, mean_upload)
        return Server(point, server.time + 1)

    def model(hparams, server):
        return server.point

    return Algorithm(init, broadcast, client_update, server_update, model)
