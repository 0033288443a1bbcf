"""S-DANE: stabilised proximal-point steps with two exchanges a round.

Jiang, Rodomanov and Stich, "Stabilized proximal-point methods for federated
optimization", NeurIPS 2024 (arXiv 2407.07084), Algorithm 1, written from memory
and checked by its identities.
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
from fcojax.types import NonNegative, Positive


class Hparams(NamedTuple):
    """The local solver's step size, 1 / lambda, mu, and its accuracy."""

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    convexity: NonNegative = 0.0
    accuracy: NonNegative = 0.5  # local gradients, in units of lambda |x - v|


class Server(NamedTuple):
    """The mean of the local solutions, the centre v, and df(v)."""

    point: object
    centre: object
    slope: object
    solving: object


@takes(Hparams)
def s_dane(loss):
    """Minimise f_i(x) + <df(v) - df_i(v), x> + lambda |x - v|^2 / 2 locally."""
    gradient = mean_gradient(loss)

    def init(hparams, params):
        zeros = tree.zeros_like(params)
        server = Server(params, params, zeros, jnp.zeros((), bool))
        return server, zeros  # a client keeps df_i(v)

    def broadcast(hparams, server):
        return server.centre, server.slope, server.solving

    def client_update(hparams, message, client, local, key):
        (centre, slope, solving), rows = message, local.full()
        moved = tree.sub(slope, client)

        def slope_at(x):  # of the subproblem
            pull = tree.scale(1 / hparams.prox_step, tree.sub(x, centre))
            return tree.add(tree.add(gradient(x, rows), moved), pull)

        def done(x):
            far = tree.norm(tree.sub(x, centre))
            needed = hparams.accuracy / hparams.prox_step
            return (
                tree.norm(slope_at(x)) <= jnp.asarray(needed, far.dtype) * far
            )

        def step(x, batch):
            return tree.add_scaled(x, -hparams.client_lr, slope_at(x))

        x, num_steps = local.until(step, centre, done)
        x = tree.where(solving, x, centre)
        own = gradient(x, rows)
        upload = tree.sub(x, centre), own
        steps = {"steps": jnp.where(solving, num_steps, 0).astype(float)}
        return ClientResult(tree.where(solving, client, own), upload, steps)

    def server_update(hparams, server, mean_upload, fraction, key):
        moved, slope = mean_upload
        point = tree.add(server.centre, moved)
        weight = 1 / (1 + hparams.convexity * hparams.prox_step)
        ahead = tree.add_scaled(server.centre, -hparams.prox_step, slope)
        centre = tree.add(
            tree.scale(weight, ahead), tree.scale(1 - weight, point)
        )
        stepped = Server(point, centre, tree.zeros_like(slope), ~server.solving)
        asked = server._replace(slope=slope, solving=~server.solving)
        return tree.where(server.solving, stepped, asked)

    def model(hparams, server):
        return server.point

    plain = Algorithm(init, broadcast, client_update, server_update, model)
    return plain._replace(facts=Facts(needs_everyone="or held"))
