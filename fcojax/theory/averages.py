r"""Algorithms whose model is an average of iterates, for which the theorems are stated.

Both are ordinary algorithms, so ``run`` and ``sweep`` accept them.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms import Algorithm, ClientResult, mean_gradient, takes
from fcojax.algorithms.dual_averages import DualPoint, FedDualAvgHparams
from fcojax.problems.losses import Loss
from fcojax.transforms import Mirror
from fcojax.types import Array, Params, PyTree


class Averaged(NamedTuple):
    """An algorithm's server state, the mean of the points so far, and their number."""

    inner: PyTree
    mean: Params
    count: Array


def average_of_rounds(algorithm: Algorithm) -> Algorithm:
    r"""Return the algorithm with the model :math:`(1/R) \sum_{r=1}^R w_r`, without the start.

    Args:
      algorithm: any algorithm.
    """

    def init(hparams, params):
        inner, client = algorithm.init(hparams, params)
        zeros = jax.tree.map(jnp.zeros_like, algorithm.model(hparams, inner))
        return Averaged(inner, zeros, jnp.zeros((), jnp.int32)), client

    def broadcast(hparams, server):
        return algorithm.broadcast(hparams, server.inner)

    def server_update(hparams, server, mean_upload, fraction, key):
        inner = algorithm.server_update(hparams, server.inner, mean_upload, fraction, key)
        count = server.count + 1
        change = tree.sub(algorithm.model(hparams, inner), server.mean)
        share = 1 / count.astype(jnp.result_type(float))
        return Averaged(inner, tree.add_scaled(server.mean, share, change), count)

    def model(hparams, server):
        start = algorithm.model(hparams, server.inner)
        return tree.where(server.count > 0, server.mean, start)

    return algorithm._replace(
        init=init, broadcast=broadcast, server_update=server_update, model=model
    )


class Shadowed(NamedTuple):
    r"""A dual point, and means over all local steps so far.

    Attributes:
      point: the server's :math:`(z_r, T_r)`.
      mean: the mean of the shadow iterates :math:`P_{\eta_c j}(\bar z_j)`.
      discrepancy: the mean over clients and the points at which gradients were taken of
        :math:`\|z_j^m - \bar z_j\|_*^2`.
      count: the number of steps in the means.
    """

    point: DualPoint
    mean: Params
    discrepancy: Array
    count: Array


class Trajectory(NamedTuple):
    """A client's duals after each of its steps, as displacements, and their squared norms."""

    duals: Params
    squared: Array


@takes(FedDualAvgHparams)
def shadow_average(
    loss: Loss, mirror: Mirror, squared_dual_norm: Callable[[Array], Array]
) -> Algorithm:
    r"""FedDualAvg at server rate one, whose model is the average of its shadow iterates.

    .. math:: \bar z_{r,k} = \tfrac{1}{M} \sum_m z^m_{r,k}, \qquad
              \hat w = \frac{1}{KR} \sum_{r,k} P_{\eta_c (rK + k)}(\bar z_{r,k}), \quad
              k = 1, \dots, K

    The average is over primal images of the mean dual, not over the clients' models, so every
    client uploads its whole path, K times the traffic. The parameters are one vector, every client
    takes the same K steps, and ``server_lr`` is unused.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      squared_dual_norm: ``(z) -> |z|_*^2`` over the last axis, for a norm from an inner product.

    References:
      Yuan, Zaheer and Reddi, 2021, equation 4.2.
    """
    gradient = mean_gradient(loss)

    def to_primal(hparams, dual, elapsed):
        return mirror.to_primal(dual, elapsed, hparams.penalty_scale)

    def init(hparams, params):
        point = DualPoint(mirror.to_dual(params), jnp.zeros_like(jnp.asarray(hparams.client_lr)))
        zero = jnp.zeros((), params.dtype)
        return Shadowed(point, jnp.zeros_like(params), zero, jnp.zeros((), jnp.int32)), ()

    def broadcast(hparams, server):
        return server.point

    def client_update(hparams, message, client, local, key):
        num_steps = local.work.max_steps(local.max_size)

        def step(carry, batch):
            moved, k, path = carry
            elapsed = message.elapsed + k.astype(message.elapsed.dtype) * hparams.client_lr
            slope = gradient(to_primal(hparams, message.dual + moved, elapsed), batch)
            moved = moved - hparams.client_lr * slope
            return moved, k + 1, path.at[k].set(moved)

        start = jnp.zeros_like(message.dual)
        path = jnp.zeros((num_steps, *start.shape), start.dtype)
        *_, path = local.scan(step, (start, jnp.zeros((), jnp.int32), path))
        return ClientResult(client, Trajectory(path, squared_dual_norm(path)), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        path, squared = mean_upload
        steps = 1 + jnp.arange(squared.shape[0], dtype=jnp.int32)
        elapsed = server.point.elapsed + steps.astype(path.dtype) * hparams.client_lr
        shadows = jax.vmap(lambda moved, at: to_primal(hparams, server.point.dual + moved, at))(
            path, elapsed
        )
        # The variance around the mean, for a norm from an inner product, at the points where
        # gradients are taken: at the common start and after every step but the last.
        variance = (squared - squared_dual_norm(path)).at[-1].set(0)
        before = (server.mean, server.discrepancy)
        after = (jnp.mean(shadows, axis=0), jnp.mean(variance))
        count = server.count + steps.shape[0]
        share = steps.shape[0] / count.astype(path.dtype)
        mean, discrepancy = tree.add_scaled(before, share, tree.sub(after, before))
        point = DualPoint(server.point.dual + path[-1], elapsed[-1])
        return Shadowed(point, mean, discrepancy, count)

    def model(hparams, server):
        start = to_primal(hparams, server.point.dual, server.point.elapsed)
        return tree.where(server.count > 0, server.mean, start)

    return Algorithm(init, broadcast, client_update, server_update, model)
