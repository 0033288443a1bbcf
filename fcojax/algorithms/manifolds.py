"""Riemannian averages: local steps on a manifold, averaged in the tangent space."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from fcojax import tree
from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.local import Batch, mean_gradient
from fcojax.algorithms.parts import Geometry, ServerStep, method, none, pull, stepping
from fcojax.problems.losses import Loss
from fcojax.transforms.manifolds.manifold import Manifold, riemannian_gradient
from fcojax.types import NonNegative, Params, Positive

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
    ``theory.manifold.drift_floor``.

    Args:
      loss: one loss per example.
      manifold: M; the start point is projected on it.
      maps: R and its inverse: ``"geodesic"`` for exp and log, ``"retraction"`` for ``retract`` and
        ``inverse_retract``, ``"projection"`` for ``retract`` and the projection of the chord on
        the tangent space, which is cheap and accurate to second order.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> loss = lambda x, rows: -((rows["a"] @ x) ** 2) / 2
      >>> algorithm = fcojax.algorithms.r_fed_avg(loss, fcojax.transforms.sphere(), maps="geodesic")
      >>> hparams = algorithm.hparams_type(client_lr=0.1)
      >>> server, client = algorithm.init(hparams, jnp.array([0.0, 4.0]))
      >>> algorithm.model(hparams, server).tolist()
      [0.0, 1.0]

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
    floor once :math:`\mu \eta K` exceeds 1, and slows the method down by as much.

    Args:
      loss: one loss per example.
      manifold: M; the start point is projected on it.
      maps: R and its inverse, ``"geodesic"``, ``"retraction"`` or ``"projection"``; see
        ``r_fed_avg``.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.r_fed_prox.Hparams(prox_scale=5.0)
      RFedProxHparams(client_lr=0.01, server_lr=1.0, prox_scale=5.0)
      >>> fcojax.algorithms.r_fed_prox.geometry
      ('manifold',)

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
