r"""FedFW: federated Frank-Wolfe, for sets whose vertices are cheaper than their projection.

Dadras, Banerjee, Prakhya and Yurtsever, "Federated Frank-Wolfe algorithm", ECML PKDD 2024 (arXiv
2408.10090), written from its abstract and from memory.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.constraints.vertices import l1_vertex
from fcojax.types import Array, NonNegative, Params, Scalar


class FedFWHparams(NamedTuple):
    """``pull_scale`` is lambda_0, ``penalty_scale`` the radius of the set."""

    pull_scale: NonNegative = 1.0
    penalty_scale: NonNegative = 1.0


class Round(NamedTuple):
    """The mean of the clients' points, and t, which counts rounds from one."""

    point: Params
    count: Array


class Averaged(NamedTuple):
    """The mean of a round's gradients so far, and their number."""

    slope: Params
    count: Array


@takes(FedFWHparams)
def fed_fw(loss: Loss, *, vertex: Callable[[Params, Scalar], Params] = l1_vertex) -> Algorithm:
    r"""Minimise the mean loss over a bounded convex set D, without projections or step sizes.

    Clients keep points :math:`x_i` of D and send a vertex of D; the server keeps the mean x of
    these points: with :math:`s_t = 2 / (t + 1)` and t = 1, 2, ...

    .. math:: g_i = \nabla f_i(x_i) + \lambda_0 \sqrt{t + 1}\,(x_i - x), \quad
              v_i \in \arg\min_{v \in D} \langle g_i, v \rangle, \quad
              x_i \leftarrow x_i + s_t (v_i - x_i), \quad
              x \leftarrow x + s_t \Big(\sum_i p_i v_i - x\Big).

    The weight of the distance to the mean grows, so that clients agree in the limit; with full
    participation x is the mean of the :math:`x_i`. The first step ends at a vertex. The gap falls
    as :math:`1 / \sqrt{t}` for convex losses: use it where a projection is too expensive.

    With several local steps the gradient is the mean over their batches, all taken at
    :math:`x_i`.

    Args:
      loss: one loss per example.
      vertex: ``(g, radius) -> v`` for D; ``transforms.l1_vertex`` or ``nuclear_vertex``.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> loss = lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2
      >>> algorithm = fcojax.algorithms.fed_fw(loss, vertex=fcojax.transforms.nuclear_vertex)
      >>> hparams = algorithm.hparams_type(penalty_scale=2.0)
      >>> server, client = algorithm.init(hparams, jnp.zeros((3, 2)))
      >>> int(server.count), client.shape  # a client stores its own point of the set
      (1, (3, 2))
    """
    gradient = mean_gradient(loss)

    def step_of(hparams, count):
        return 2 / (count.astype(jnp.asarray(hparams.pull_scale).dtype) + 1)

    def init(hparams, params):
        return Round(params, jnp.ones((), jnp.int32)), params

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        size = step_of(hparams, message.count)

        def add_batch(mean, batch):
            change = tree.sub(gradient(client, batch), mean.slope)
            count = mean.count + 1
            return Averaged(tree.add_scaled(mean.slope, 1 / count, change), count)

        slope = local.scan(add_batch, Averaged(tree.zeros_like(client), jnp.zeros_like(size))).slope
        weight = hparams.pull_scale * jnp.sqrt(2 / size)
        slope = tree.add_scaled(slope, weight, tree.sub(client, message.point))
        target = vertex(slope, hparams.penalty_scale)
        moved = tree.add_scaled(client, size, tree.sub(target, client))
        return ClientResult(moved, tree.sub(target, message.point), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        size = step_of(hparams, server.count)
        return Round(tree.add_scaled(server.point, size, mean_upload), server.count + 1)

    def model(hparams, server):
        return server.point

    return Algorithm(init, broadcast, client_update, server_update, model)
