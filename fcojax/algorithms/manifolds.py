"""Manifolds: local steps averaged in a tangent space, or projected steps without client drift."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.averages import pull
from fcojax.algorithms.base import Algorithm, ClientResult, Facts, Public, takes
from fcojax.algorithms.frame import Geometry, ServerStep, count_of, method, none, stepping
from fcojax.algorithms.local import Batch, mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.manifolds.manifold import Manifold, ambient_norm, riemannian_gradient
from fcojax.types import Array, NonNegative, Params, Positive

MapNames = Literal["geodesic", "retraction", "projection"]


class Maps(NamedTuple):
    """``move(x, tangent) -> y`` along a manifold, and ``back(x, y) -> tangent``, its inverse."""

    move: Callable[[Params, Params], Params]
    back: Callable[[Params, Params], Params]


def gradient_on(manifold: Manifold, loss: Loss) -> Callable[[Params, Batch], Params]:
    """Return ``(z, batch) -> gradient``, the Riemannian gradient at z of the mean loss."""
    gradient = mean_gradient(loss)
    return lambda z, batch: riemannian_gradient(manifold, z, gradient(z, batch))


def curved(manifold: Manifold, maps: Maps) -> Geometry:
    r"""Steps :math:`z \leftarrow R_z(-\eta_c \, slope)` on a manifold."""

    def step(hparams, z, slope, _):
        return maps.move(z, tree.scale(-hparams.client_lr, slope))

    return stepping(
        "manifold",
        step,
        leave=maps.back,
        start=lambda hparams, params: manifold.project(params),
        gradient=lambda loss: gradient_on(manifold, loss),
    )


class RFedAvgHparams(NamedTuple):
    """``client_lr`` is eta, ``server_lr`` is eta_g."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0


class RFedProxHparams(NamedTuple):
    """``client_lr`` is eta, ``server_lr`` is eta_g, ``prox_scale`` is mu."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    prox_scale: NonNegative = 1.0


@takes(RFedAvgHparams, "manifold")
def r_fed_avg(loss: Loss, manifold: Manifold, *, maps: MapNames = "retraction") -> Algorithm:
    r"""Riemannian federated averaging.

    .. math:: z^m_{k+1} = R_{z^m_k}\bigl(-\eta\, \mathrm{grad} f(z^m_k; \xi^m_k)\bigr),
              \quad z^m_0 = x_r, \qquad
              x_{r+1} = R_{x_r}\Bigl(\eta_g \sum_m p_m R_{x_r}^{-1}(z^m_K)\Bigr)

    With heterogeneous clients and K > 1 it stalls where the gradient is about
    ``theory.manifold.drift_floor``. The start point is projected on the manifold.

    The ``maps`` are R and its inverse: ``"geodesic"`` for exp and log, ``"retraction"`` for
    ``retract`` and ``inverse_retract``, ``"projection"`` for ``retract`` and the chord's projection
    on the tangent space, accurate to second order.

    Example:
      >>> import fcojax
      >>> sphere = fcojax.transforms.sphere()
      >>> fcojax.algorithms.r_fed_avg(None, sphere, maps="geodesic").facts.parts
      ('manifold', 'none', 'average, tangent')

    References:
      Li and Ma, "Federated learning on Riemannian manifolds", Applied Set-Valued Analysis and
      Optimization 2023 (arXiv 2206.05668).
    """
    maps_used = maps_of(manifold, maps)
    return method(loss, curved(manifold, maps_used), none(), tangent_average(maps_used))


@takes(RFedProxHparams, "manifold")
def r_fed_prox(loss: Loss, manifold: Manifold, *, maps: MapNames = "retraction") -> Algorithm:
    r"""RFedAvg whose clients also descend :math:`(\mu / 2)\,\mathrm{dist}^2(z, x_r)`.

    .. math:: z^m_{k+1} = R_{z^m_k}\bigl(-\eta\,(\mathrm{grad} f(z^m_k; \xi^m_k)
                                         - \mu R_{z^m_k}^{-1}(x_r))\bigr)

    The gradient of half the squared distance is :math:`-R_z^{-1}(x)`. The term lowers RFedAvg's
    floor once :math:`\mu \eta K` exceeds 1, and slows the method down by as much. The ``maps`` are
    those of ``r_fed_avg``.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.r_fed_prox(None, fcojax.transforms.sphere()).facts.parts
      ('manifold', 'pull', 'average, tangent')

    References:
      Li and Ma, "Federated learning on Riemannian manifolds", Applied Set-Valued Analysis and
      Optimization 2023 (arXiv 2206.05668); in their public code the proximal term has the wrong
      sign, which drives clients apart.
    """
    maps_used = maps_of(manifold, maps)
    correction = pull(towards=maps_used.back)
    return method(loss, curved(manifold, maps_used), correction, tangent_average(maps_used))


def tangent_average(maps: Maps) -> ServerStep:
    """The mean of the tangent vectors to the clients' points, times ``server_lr``."""

    def step(hparams, x, mean, fraction, key):
        return maps.move(x, tree.scale(hparams.server_lr, mean))

    return ServerStep("average, tangent", step)


def maps_of(manifold: Manifold, maps: MapNames) -> Maps:
    """Return the maps of that name; raise ``ValueError`` if the manifold has none."""
    choices = {
        "geodesic": (manifold.exp, manifold.log),
        "retraction": (manifold.retract, manifold.inverse_retract),
        "projection": (manifold.retract, lambda x, y: manifold.to_tangent(x, tree.sub(y, x))),
    }
    move, back = choices[maps]
    if move is None or back is None:
        known = [repr(name) for name, (move, back) in choices.items() if move and back]
        raise ValueError(
            f"maps is {maps!r}, which this manifold does not have in closed form; pass "
            f"{' or '.join(known)}."
        )
    return Maps(move, back)


class FedManifoldHparams(NamedTuple):
    """``client_lr`` is eta, ``server_lr`` is eta_g."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0


class ManifoldServer(NamedTuple):
    """The server's x and mean direction d, and the distance to M of x before its projection."""

    point: Params
    direction: Params
    distance: Array


class GradientChange(NamedTuple):
    """What a client sends: the change of its stored gradient, and its number of steps."""

    slope: Params
    num_steps: Public


class LocalState(NamedTuple):
    """A client between two local steps: z, where gradients are taken, and the sum of all steps.

    Also the sum of the gradients so far, without corrections, divided by the number of steps K; and
    the largest distance to the manifold of any point that was projected.
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

    The correction :math:`c^m_r = d_r - g^m` is the direction :math:`d_r`, the mean of the clients'
    stored gradients, minus the client's own: :math:`g^m`, the mean of its gradients in the last
    round it took part in, zero before its first. With full batches the fixed points are the
    stationary points of the mean loss, for any K, rates and heterogeneity.

    A client sends the change of its stored gradient. The mean displacement of the clients is
    :math:`-\eta K (d_r + \Delta)` with :math:`\Delta` the mean change, and K the mean number of
    steps if clients differ in it; :math:`d` itself changes by :math:`\Delta` times the share of
    the weights that takes part. So :math:`\sum_m p_m c^m_r = 0` over **all** clients, for any
    cohort and any numbers of steps. Averaging the gradients of the cohort alone has other fixed
    points, and so has resetting the correction of a client that was absent. With full participation
    and equal K it is the algorithm of the paper, whose server sends the point alone: clients
    recover the direction from two consecutive points, nothing damps rounding errors in the mean
    correction, and in float32 the model drifts away.

    Metrics: ``tube_distance``, the largest distance to M of a point that was projected, as the mean
    over clients; ``beyond_reach``, the share of clients for which it exceeded ``manifold.reach``.
    The theory requires half the reach.

    Args:
      loss: one loss per example.
      manifold: M, or a product with flat parts. The start point is projected on it.
      sends: ``"both"``: the server sends the point and the direction; ``"direction"``: only the
        direction, and clients store the point and take the server's step themselves. That needs all
        clients in every round; their copies differ by about 2e-9 per round in float32.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> algorithm = fcojax.algorithms.fed_manifold(None, fcojax.transforms.sphere())
      >>> server, _ = algorithm.init(algorithm.hparams_type(), jnp.array([0.0, 4.0]))
      >>> server.point.tolist()
      [0.0, 1.0]

    References:
      Zhang, Hu, So and Johansson, "Nonconvex federated learning on compact smooth submanifolds with
      heterogeneous data", NeurIPS 2024, Algorithm 1; others call it RFedProj. Partial cohorts,
      unequal K and the weights p_m are ours.
    """
    gradient = mean_gradient(loss)

    def local_steps(hparams, start, distance, correction, local) -> LocalState:
        """Take the local steps; ``distance`` is the distance of ``start`` before its projection."""
        share = 1 / count_of(hparams, local)

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
        upload = GradientChange(tree.sub(end.slope, client), Public(count_of(hparams, local)))
        beyond = jnp.where(end.farthest > manifold.reach, 1.0, 0.0)
        metrics = {"tube_distance": end.farthest, "beyond_reach": beyond}
        return ClientResult(end.slope, upload, metrics)

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
        step = hparams.server_lr * hparams.client_lr * count_of(hparams, local)
        point, distance = project(tree.add_scaled(client.start, -step, message))
        server = ManifoldServer(point, message, distance)
        result = client_update(hparams, server, client.slope, local, key)
        return result._replace(state=OwnPoint(point, result.state))

    functions = own_point_init, own_point_broadcast, own_point_client_update, server_update, model
    return Algorithm(*functions, facts=Facts(needs_everyone=True, exact=True))
