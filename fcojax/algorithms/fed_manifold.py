r"""Federated learning on a manifold: projected local steps with correction terms.

Zhang, Hu, So and Johansson, "Nonconvex federated learning on compact smooth submanifolds with
heterogeneous data", NeurIPS 2024; others call it RFedProj.
"""

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.fed_avg import Rates
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.problem import Loss
from fcojax.transforms.manifolds.manifold import Manifold, ambient_norm, riemannian_gradient
from fcojax.types import Array, Params


class Server(NamedTuple):
    """What the server keeps and sends.

    Attributes:
      point: the model x, on the manifold.
      direction: the mean over all clients of the slopes they remember.
      distance: how far the point was from the manifold before it was projected.
    """

    point: Params
    direction: Params
    distance: Array


class Change(NamedTuple):
    """What a client sends: how its mean slope has changed, and how many steps it took."""

    slope: Params
    num_steps: Public


class Walk(NamedTuple):
    """A client between two local steps.

    Attributes:
      point: z, on the manifold, where gradients are taken.
      ambient: the point that adds up all steps and is not projected within a round.
      slope: the gradients so far, without corrections, over the number of steps in all.
      farthest: the largest distance to the manifold of any point that was projected.
    """

    point: Params
    ambient: Params
    slope: Params
    farthest: Array


class Place(NamedTuple):
    """What a client keeps that is sent directions only: its last round's start and mean slope."""

    start: Params
    slope: Params


class Memory(NamedTuple):
    """What a client keeps that is sent points only: its last round's start, mean slope, length."""

    start: Params
    slope: Params
    length: Array


Sent = Literal["both", "direction", "point"]


@takes(Rates, "manifold")
def fed_manifold(loss: Loss, manifold: Manifold, *, sends: Sent = "both") -> Algorithm:
    r"""Minimises the clients' mean loss over a compact submanifold M, without client drift.

    With P the projection on M and K local steps, a client starts from :math:`z_0 = \hat z_0 =
    x_r = P(\bar x_r)` and the server takes the mean of the clients' last points,

    .. math::
       \hat z^m_{k+1} &= \hat z^m_k - \eta \bigl(\mathrm{grad} f(z^m_k; \xi^m_k) + c^m_r\bigr),
       \qquad z^m_{k+1} = P(\hat z^m_{k+1}) \\
       \bar x_{r+1} &= x_r + \eta_g \sum_m p_m (\hat z^m_K - x_r)

    where :math:`\eta` is ``client_lr`` and :math:`\eta_g` ``server_lr``. The correction
    :math:`c^m_r = d_r - g^m` is the direction :math:`d_r`, the mean of the clients' slopes, minus
    the client's own slope: :math:`g^m`, the mean of its gradients in the round it last took part
    in, zero before its first. The model is :math:`P(\bar x)`. With full batches its fixed points
    are the stationary points of the mean loss, whatever K, the rates and the heterogeneity.

    A client sends how its slope has changed. The mean displacement of the clients is
    :math:`-\eta K (d_r + \Delta)` with :math:`\Delta` the mean change, and K the mean number of
    steps if clients differ in it; :math:`d` itself moves by :math:`\Delta` times the share of the
    weights that takes part. So :math:`\sum_m p_m c^m_r = 0` over **all** clients, whoever takes
    part and however many steps each takes: absent clients keep their slopes, and :math:`d` stays
    the mean of all of them. Averaging the slopes of the cohort alone has other fixed points, and
    so has resetting the correction of a client that was away. With everyone and equal K it is the
    printed algorithm.

    The message holds a point and a direction, two arrays, so that a client may come back after
    any time. With everyone, and equal numbers of steps, one of them is enough.

    Metrics: ``tube_distance``, the largest distance to M of a point that was projected, as the
    mean over clients; ``beyond_reach``, the share of clients for which it exceeded
    ``manifold.reach``, so that the projection need not have been unique. The theory asks for half
    the reach.

    Args:
      loss: one loss per example.
      manifold: M, or a product with flat parts. The start point is projected on it.
      sends: what the server sends, ``"both"`` or one of the two, which is the same in exact
        arithmetic and needs everyone. Sent the ``"direction"``, clients remember the point and take
        the server's step themselves; their copies and the server's part by rounding, by some 2e-9 a
        round in float32. Sent the ``"point"``, as printed, they recover the direction
        from two consecutive ones; nothing damps rounding errors in the mean correction then, and in
        float32 they drive the model away.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> loss = lambda x, rows: -((rows["a"] @ x) ** 2) / 2
      >>> algorithm = fcojax.algorithms.fed_manifold(loss, fcojax.transforms.sphere())
      >>> hparams = algorithm.hparams_type(client_lr=0.1)
      >>> server, client = algorithm.init(hparams, jnp.array([0.0, 4.0]))
      >>> algorithm.model(hparams, server).tolist(), algorithm.needs_everyone
      ([0.0, 1.0], False)

    References:
      Zhang et al., 2024, Algorithm 1. Partial cohorts, unequal K and the weights p_m are ours.
    """
    if sends not in get_args(Sent):
        raise ValueError(f"sends is {sends!r}; pass one of {', '.join(get_args(Sent))}.")
    gradient = mean_gradient(loss)

    def walk(hparams, start, distance, correction, local) -> Walk:
        """The local steps from ``start``, which was at a ``distance`` before its projection."""
        share = 1 / steps_of(local, hparams)

        def step(now, batch):
            slope = riemannian_gradient(manifold, now.point, gradient(now.point, batch))
            ambient = tree.add_scaled(now.ambient, -hparams.client_lr, tree.add(slope, correction))
            point, distance = land(ambient)
            # Divided here and not at the end: the change of the mean must be the rounded one's, and
            # a compiler is free to subtract from a product that it has not rounded.
            mean = tree.add_scaled(now.slope, share, slope)
            return Walk(point, ambient, mean, jnp.maximum(now.farthest, distance))

        return local.scan(step, Walk(start, start, tree.zeros_like(start), distance))

    def land(ambient):
        point = manifold.project(ambient)
        # The distance is a measurement: no derivative of a run goes through it.
        off = jax.lax.stop_gradient(tree.sub(ambient, point))
        return point, ambient_norm(manifold, off)

    def metrics(end: Walk):
        beyond = jnp.where(end.farthest > manifold.reach, 1.0, 0.0)
        return {"tube_distance": end.farthest, "beyond_reach": beyond}

    def steps_of(local, hparams):
        return local.num_steps.astype(jnp.asarray(hparams.client_lr).dtype)

    def init(hparams, params):
        point, distance = land(params)
        nothing = tree.zeros_like(point)
        return Server(point, nothing, tree.zeros_like(distance)), nothing

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        correction = tree.sub(message.direction, client)
        end = walk(hparams, message.point, message.distance, correction, local)
        # Not the whole walk: what has converged cancels here, before it is rounded.
        change = Change(tree.sub(end.slope, client), Public(steps_of(local, hparams)))
        return ClientResult(end.slope, change, metrics(end))

    def server_update(hparams, server, mean_upload, cohort, key):
        length = hparams.server_lr * hparams.client_lr * mean_upload.num_steps.value
        walked = tree.add(server.direction, mean_upload.slope)
        point, distance = land(tree.add_scaled(server.point, -length, walked))
        direction = tree.add_scaled(server.direction, cohort.fraction, mean_upload.slope)
        return Server(point, direction, distance)

    def model(hparams, server):
        return server.point

    if sends == "both":
        return Algorithm(init, broadcast, client_update, server_update, model)

    def own_point_init(hparams, params):
        server, nothing = init(hparams, params)
        return server, Place(server.point, nothing)

    def own_point_broadcast(hparams, server):
        return server.direction

    def own_point_client_update(hparams, message, client, local, key):
        length = hparams.server_lr * hparams.client_lr * steps_of(local, hparams)
        point, distance = land(tree.add_scaled(client.start, -length, message))
        server = Server(point, message, distance)
        result = client_update(hparams, server, client.slope, local, key)
        return result._replace(state=Place(point, result.state))

    if sends == "direction":
        return Algorithm(
            own_point_init, own_point_broadcast, own_point_client_update, server_update, model,
            needs_everyone=True,
        )  # fmt: skip

    def literal_init(hparams, params):
        point = manifold.project(params)
        length = jnp.ones_like(jnp.asarray(hparams.client_lr))
        return point, Memory(point, tree.zeros_like(point), length)

    def literal_client_update(hparams, message, client, local, key):
        start, distance = land(message)
        moved = tree.scale(1 / client.length, tree.sub(client.start, message))
        end = walk(hparams, start, distance, tree.sub(moved, client.slope), local)
        length = hparams.server_lr * hparams.client_lr * steps_of(local, hparams)
        memory = Memory(start, end.slope, length)
        return ClientResult(memory, tree.sub(end.ambient, start), metrics(end))

    def literal_server_update(hparams, server, mean_upload, cohort, key):
        return tree.add_scaled(manifold.project(server), hparams.server_lr, mean_upload)

    def literal_model(hparams, server):
        return manifold.project(server)

    return Algorithm(
        literal_init,
        broadcast,
        literal_client_update,
        literal_server_update,
        literal_model,
        needs_everyone=True,
    )
