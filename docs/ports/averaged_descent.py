"""Averaged coordinate descent: every site sweeps over its own lasso.

Bolouri, "Federated lasso" (github.com/KeivanBolouri/federated-lasso): from the
server's model a site takes E cyclic sweeps of coordinate descent (Friedman,
Hastie and Tibshirani, J. Stat. Software 2010) on its own penalised loss; the
server averages the models. This is not exact: if the columns of each site are
orthogonal, the limit is the mean of the sites' soft thresholds, and the pooled
lasso is the soft threshold of the mean.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fcojax.algorithms import Algorithm, ClientResult, mean_loss, takes
from fcojax.types import NonNegative


class Hparams(NamedTuple):
    """The strength lambda, the same at all sites."""

    penalty_scale: NonNegative = 0.1


@takes(Hparams, "penalty")
def averaged_descent(loss, penalty):
    """Average the models after sweeps of coordinate descent at the clients.

    A local step is one sweep over the quadratic model of the loss at its start.
    The penalty is a sum over coordinates.
    """
    value = mean_loss(loss)

    def init(hparams, params):
        return params, ()

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        start, unravel = ravel_pytree(message)

        def sweep(w, batch):
            def flat(x):
                return value(unravel(x), batch)

            hessian = jax.hessian(flat)(w)

            def one_coordinate(j, point):
                w, slope = point
                # The step of a column of zeros, whose coefficient becomes zero.
                longest = 1 / jnp.finfo(w.dtype).tiny
                step = jnp.minimum(1 / hessian[j, j], longest)
                ahead = w[j] - step * slope[j]
                best = penalty.prox(ahead, step, hparams.penalty_scale)
                moved = best.astype(w.dtype) - w[j]
                return w.at[j].add(moved), slope + moved * hessian[j]

            point = w, jax.grad(flat)(w)
            return jax.lax.fori_loop(0, w.size, one_coordinate, point)[0]

        end = local.scan(sweep, start)
        return ClientResult(client, unravel(end - start), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        return jax.tree.map(jnp.add, server, mean_upload)

    def model(hparams, server):
        return server

    return Algorithm(init, broadcast, client_update, server_update, model)
