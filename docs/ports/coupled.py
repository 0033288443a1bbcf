"""A model for each client under one norm for all: shared zeros, or fusion.

    around="mean": sum_i p_i f_i(w_i) + psi(w)
                   + mu sum_j (sum_i p_i (w_ij - w_j)^2)^(1/2), w their mean
    around="zero": sum_i p_i f_i(w_i) + mu sum_j (sum_i p_i w_ij^2)^(1/2)

In the first few entries differ from the mean model; in the second all models
have the same zeros. The prox multiplies an entry by one number at all clients,
which depends on its mean and mean square over all of them: the server keeps
these two, and an absent client's part stays in them. With x_i the prox at z,

    y_i = prox of eta f_i at 2 x_i - z_i, by local steps,
    z_i <- z_i + y_i - x_i,

Douglas-Rachford splitting with clients as random blocks (Combettes and Pesquet,
SIAM J. Optim. 2015), exact with any cohort. The form with two means is ours.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms import Algorithm, ClientResult, mean_gradient, takes
from fcojax.transforms import zero
from fcojax.types import NonNegative, Positive


class Hparams(NamedTuple):
    """The local step, eta, mu, and the strength of psi."""

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    fusion_scale: NonNegative = 0.1
    penalty_scale: NonNegative = 0.1


@takes(Hparams, "penalty")
def coupled(loss, penalty=None, *, around: Literal["mean", "zero"] = "mean"):
    """Couple the clients' models by norms of their entries, around a point."""
    gradient, psi = mean_gradient(loss), penalty or zero()
    fuses = around == "mean"
    if penalty is not None and not fuses:
        raise ValueError("around is zero; pass no penalty, the norm is one.")

    def squares(point):
        return jax.tree.map(jnp.square, point)

    def at(message, point):
        factor, shift = message
        shrunk = jax.tree.map(jnp.multiply, factor, point)
        return tree.add(shift, shrunk) if fuses else shrunk

    def init(hparams, params):
        return (params, squares(params)), (params, params)

    def broadcast(hparams, server):  # the prox: a factor and a shift of entries
        (mean, square), step = server, hparams.prox_step

        def shrinkage(square):  # 0 for both zero
            level = jnp.asarray(step * hparams.fusion_scale, square.dtype)
            norm = jnp.sqrt(jnp.maximum(square, 0))  # it may round below zero
            shrunk = 1 - level / jnp.where(norm > level, norm, 1)
            none = jnp.asarray(level == 0, square.dtype)
            return jnp.where(norm > level, shrunk, none)

        if not fuses:
            return jax.tree.map(shrinkage, square), ()
        factor = jax.tree.map(shrinkage, tree.sub(square, squares(mean)))
        center = psi.prox(mean, step, hparams.penalty_scale)
        return factor, tree.sub(
            center, jax.tree.map(jnp.multiply, factor, mean)
        )

    def client_update(hparams, message, client, local, key):
        z, y = client
        x = at(message, z)
        target = tree.sub(tree.scale(2.0, x), z)

        def step(y, batch):
            pull = tree.scale(1 / hparams.prox_step, tree.sub(y, target))
            slope = tree.add(gradient(y, batch), pull)
            return tree.add_scaled(y, -hparams.client_lr, slope)

        y = local.scan(step, y)
        moved = tree.add(z, tree.sub(y, x))
        upload = tree.sub((moved, squares(moved)), (z, squares(z)))
        return ClientResult((moved, y), upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        return tree.add_scaled(server, fraction, mean_upload)

    def model(hparams, server):
        return at(broadcast(hparams, server), server[0])

    def client_model(hparams, message, client):
        return at(message, client[0])

    plain = Algorithm(init, broadcast, client_update, server_update, model)
    return plain._replace(client_model=client_model)
