r"""Federated learning on a manifold: projected local steps with correction terms.

Zhang, Hu, So and Johansson, "Nonconvex federated learning on compact smooth submanifolds with
heterogeneous data", NeurIPS 2024; others call it RFedProj.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Facts, Public, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.manifolds.manifold import Manifold, ambient_norm, riemannian_gradient
from fcojax.types import Array, Params, Positive


class FedManifoldHparams(NamedTuple):
    """``client_lr`` is eta, ``server_lr`` is eta_g."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0


class ManifoldServer(NamedTuple):
    """The server's state and message.

    Attributes:
      point: the model x, on the manifold.
      direction: the mean over all clients of their stored gradients.
      distance: the distance of the point to the manifold before it was projected.
    """

    point: Params
    direction: Params
    distance: Array


class GradientChange(NamedTuple):
    """What a client sends: the change of its stored gradient, and its number of steps."""

    slope: Params
    num_steps: Public


class LocalState(NamedTuple):
    """A client between two local steps.

    Attributes:
      point: z, on the manifold, where gradients are taken.
      ambient: the sum of all steps, which is not projected within a round.
      slope: the sum of the gradients so far, without corrections, divided by the number of steps K.
      farthest: the largest distance to the manifold of any point that was projected.
    """

    point: Params
    ambient: Params
    slope: Params
    farthest: Array


class OwnPoint(NamedTuple):
    """A client's state with ``sends="direction"``: its last start, and its stored gradient."""

    start: Params
    slope: Params


@takes(FedManifoldHparams, "manifold")
def fed_manifold(
    loss: Loss, manifold: Manifold, *, sends: Literal["both", "direction"] = "both"
) -> Algorithm:
    r"""Minimise the clients' mean loss over a compact submanifold M, without client drift.

    With P the projection on M and K local steps, a client starts from :math:`z_0 = \hat z_0 =
    x_r = P(\bar x_r)` and the server takes the mean of the clients' last points,

    .. math::
       \hat z^m_{k+1} &= \hat z^m_k - \eta \bigl(\mathrm{grad} f(z^m_k; \xi^m_k) + c^m_r\bigr),
       \qquad z^m_{k+1} = P(\hat z^m_{k+1}) \\
       \bar x_{r+1} &= x_r + \eta_g \sum_m p_m (\hat z^m_K - x_r)

    where :math:`\eta` is ``client_lr`` and :math:`\eta_g` ``server_lr``. The correction
    :math:`c^m_r = d_r - g^m` is the direction :math:`d_r`, the mean of the clients' stored
    gradients, minus the client's own: :math:`g^m`, the mean of its gradients in the last round it
    took part in, zero before its first. The model is :math:`P(\bar x)`. With full batches its
    fixed points are the stationary points of the mean loss, for any K, rates and heterogeneity.

    A client sends the change of its stored gradient. The mean displacement of the clients is
    :math:`-\eta K (d_r + \Delta)` with :math:`\Delta` the mean change, and K the mean number of
    steps if clients differ in it; :math:`d` itself changes by :math:`\Delta` times the share of
    the weights that takes part. So :math:`\sum_m p_m c^m_r = 0` over **all** clients, for any
    cohort and any numbers of steps: absent clients keep their gradients, and :math:`d` stays the
    mean of all of them. Averaging the gradients of the cohort alone has other fixed points, and so
    has resetting the correction of a client that was absent. With full participation and equal K it
    is the algorithm of the paper.

    The message holds a point and a direction, two arrays, so that a client may return after any
    number of rounds. With full participation and equal numbers of steps, the direction is enough.
    In the paper the server sends the point alone, and clients recover the direction from two
    consecutive points; nothing damps rounding errors in the mean correction then, and in float32
    the model drifts away.

    Metrics: ``tube_distance``, the largest distance to M of a point that was projected, as the mean
    over clients; ``beyond_reach``, the share of clients for which it exceeded ``manifold.reach``,
    so that the projection need not be unique. The theory requires half the reach.

    Args:
      loss: one loss per example.
      manifold: M, or a product with flat parts. The start point is projected on it.
      sends: ``"both"``: the server sends the point and the direction; ``"direction"``: it sends
        only the direction, and clients store the point and take the server's step themselves. The
        two agree in exact arithmetic; the second needs all clients in every round. Their copies
        differ from the server's by rounding, by about 2e-9 per round in float32.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> loss = lambda x, rows: -((rows["a"] @ x) ** 2) / 2
      >>> algorithm = fcojax.algorithms.fed_manifold(loss, fcojax.transforms.sphere())
      >>> hparams = algorithm.hparams_type(client_lr=0.1)
      >>> server, client = algorithm.init(hparams, jnp.array([0.0, 4.0]))
      >>> algorithm.model(hparams, server).tolist(), algorithm.facts.needs_everyone
      ([0.0, 1.0], False)

    References:
      Zhang et al., 2024, Algorithm 1. Partial cohorts, unequal K and the weights p_m are ours.
    """
    gradient = mean_gradient(loss)

    def local_steps(hparams, start, distance, correction, local) -> LocalState:
        """Take the local steps; ``distance`` is the distance of ``start`` before its projection."""
        share = 1 / steps_of(local, hparams)

        def step(now, batch):
            slope = riemannian_gradient(manifold, now.point, gradient(now.point, batch))
            ambient = tree.add_scaled(now.ambient, -hparams.client_lr, tree.add(slope, correction))
            point, distance = project(ambient)
            # Divided here and not at the end: clients upload the difference of rounded means, and a
            # compiler may fuse a product into a subtraction without rounding it.
            mean = tree.add_scaled(now.slope, share, slope)
            return LocalState(point, ambient, mean, jnp.maximum(now.farthest, distance))

        return local.scan(step, LocalState(start, start, tree.zeros_like(start), distance))

    def project(ambient):
        point = manifold.project(ambient)
        # The distance is a measurement: no derivative of a run goes through it.
        off = jax.lax.stop_gradient(tree.sub(ambient, point))
        return point, ambient_norm(manifold, point, off)

    def metrics(end: LocalState):
        beyond = jnp.where(end.farthest > manifold.reach, 1.0, 0.0)
        return {"tube_distance": end.farthest, "beyond_reach": beyond}

    def steps_of(local, hparams):
        return local.num_steps.astype(jnp.asarray(hparams.client_lr).dtype)

    def init(hparams, params):
        point, distance = project(params)
        zeros = tree.zeros_like(point)
        return ManifoldServer(point, zeros, tree.zeros_like(distance)), zeros

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        correction = tree.sub(message.direction, client)
        end = local_steps(hparams, message.point, message.distance, correction, local)
        # Upload this and not the displacement: terms that have converged cancel before rounding.
        upload = GradientChange(tree.sub(end.slope, client), Public(steps_of(local, hparams)))
        return ClientResult(end.slope, upload, metrics(end))

    def server_update(hparams, server, mean_upload, fraction, key):
        step = hparams.server_lr * hparams.client_lr * mean_upload.num_steps.value
        current = tree.add(server.direction, mean_upload.slope)
        point, distance = project(tree.add_scaled(server.point, -step, current))
        direction = tree.add_scaled(server.direction, fraction, mean_upload.slope)
        return ManifoldServer(point, direction, distance)

    def model(hparams, server):
        return server.point

    if sends == "both":
        return Algorithm(
            init, broadcast, client_update, server_update, model, facts=Facts(exact=True)
        )

    def own_point_init(hparams, params):
        server, zeros = init(hparams, params)
        return server, OwnPoint(server.point, zeros)

    def own_point_broadcast(hparams, server):
        return server.direction

    def own_point_client_update(hparams, message, client, local, key):
        step = hparams.server_lr * hparams.client_lr * steps_of(local, hparams)
        point, distance = project(tree.add_scaled(client.start, -step, message))
        server = ManifoldServer(point, message, distance)
        result = client_update(hparams, server, client.slope, local, key)
        return result._replace(state=OwnPoint(point, result.state))

    functions = own_point_init, own_point_broadcast, own_point_client_update, server_update, model
    return Algorithm(*functions, facts=Facts(needs_everyone=True, exact=True))
