r"""Optimisers of clients and servers: any of optax, and some with a known metric for a prox.

With direction m, rates s (one number, or one per entry) and psi of weight t, a step is

.. math:: w^+ = \arg\min_x \; \langle m, x \rangle + t \psi(x) + \sum_j (x_j - w_j)^2 / 2 s_j,

the prox of psi in the metric of the optimiser. With a Euclidean prox after a scaled step the
minimiser is no fixed point.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fcojax import tree
from fcojax.types import Array, Params, PyTree, Scalar


class Step(NamedTuple):
    """The direction m, the weight t of psi against it, and the rates s: one, or a pytree like m."""

    direction: Params
    weight: Scalar
    rates: PyTree


class Optimiser(NamedTuple):
    """A rule that turns gradients into steps.

    Attributes:
      init: ``(params) -> state``.
      update: ``(gradient, weight, state, params) -> (step, state)``. ``weight`` is that of psi
        against this gradient: 1 for a gradient of the loss, K eta for the sum of K local steps of
        size eta. It receives the same momentum as the gradient, so that the two stay in proportion.
      metric: ``"scalar"`` with one rate for all entries, which admits every penalty, ``"diagonal"``
        with a rate per entry, which admits sums over entries, or ``"unknown"``.
    """

    init: Callable[[Params], PyTree]
    update: Callable[[Params, Scalar, PyTree, Params], tuple[Step, PyTree]]
    metric: str


class Momentum(NamedTuple):
    """The direction, and the weight of psi against it."""

    direction: Params
    weight: Array


class Moments(NamedTuple):
    """The first and the second moment of the gradients, and the weight of psi in the first."""

    first: Params
    second: Params
    weight: Array


def sgd(rate: Scalar) -> Optimiser:
    r"""The gradient step, :math:`m = g` with :math:`s = \eta`.

    Args:
      rate: eta.
    """
    return Optimiser(
        init=lambda params: (),
        update=lambda gradient, weight, state, params: (Step(gradient, weight, rate), state),
        metric="scalar",
    )


def heavy_ball(rate: Scalar, momentum: Scalar = 0.9) -> Optimiser:
    r"""Momentum without damping, :math:`m \leftarrow \beta m + g` with :math:`s = \eta`.

    Args:
      rate: eta.
      momentum: beta.
    """

    def init(params):
        return Momentum(tree.zeros_like(params), _no_weight(params))

    def update(gradient, weight, state, params):
        direction = tree.add_scaled(gradient, momentum, state.direction)
        state = Momentum(direction, momentum * state.weight + weight)
        return Step(*state, rate), state

    return Optimiser(init, update, "scalar")


def adagrad(rate: Scalar, b1: Scalar = 0.0, adaptivity: Scalar = 1e-3) -> Optimiser:
    r"""Adagrad as in FedOpt: ``adam`` with :math:`v \leftarrow v + g^2`.

    Args:
      rate: eta.
      b1: beta_1.
      adaptivity: tau.
    """
    return _adaptive(rate, b1, adaptivity, lambda v, square: v + square)


def adam(rate: Scalar, b1: Scalar = 0.9, b2: Scalar = 0.99, adaptivity: Scalar = 1e-3) -> Optimiser:
    r"""Adam as in FedOpt, without bias correction of the first steps.

    .. math:: m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad
              v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad s = \eta / (\sqrt{v} + \tau)

    with m = 0 and v = tau^2 at the start.

    Args:
      rate: eta.
      b1: beta_1.
      b2: beta_2.
      adaptivity: tau.
    """
    return _adaptive(rate, b1, adaptivity, lambda v, square: b2 * v + (1 - b2) * square)


def yogi(rate: Scalar, b1: Scalar = 0.9, b2: Scalar = 0.99, adaptivity: Scalar = 1e-3) -> Optimiser:
    r"""Yogi: ``adam`` with :math:`v \leftarrow v - (1 - \beta_2) g^2\, \mathrm{sign}(v - g^2)`.

    Args:
      rate: eta.
      b1: beta_1.
      b2: beta_2.
      adaptivity: tau.
    """

    def accumulate(v, square):
        return v - (1 - b2) * square * jnp.sign(v - square)

    return _adaptive(rate, b1, adaptivity, accumulate)


def _adaptive(
    rate: Scalar, b1: Scalar, adaptivity: Scalar, accumulate: Callable[[Array, Array], Array]
) -> Optimiser:
    def init(params):
        second = jax.tree.map(lambda leaf: jnp.full_like(leaf, adaptivity**2), params)
        return Moments(tree.zeros_like(params), second, _no_weight(params))

    def update(gradient, weight, state, params):
        first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.first, gradient)
        second = jax.tree.map(lambda v, g: accumulate(v, g * g), state.second, gradient)
        weight = b1 * state.weight + (1 - b1) * weight
        rates = jax.tree.map(lambda v: rate / (jnp.sqrt(v) + adaptivity), second)
        return Step(first, weight, rates), Moments(first, second, weight)

    return Optimiser(init, update, "diagonal")


def from_optax(transformation: optax.GradientTransformation) -> Optimiser:
    """An optimiser of optax; its metric is unknown, so it has no prox.

    Args:
      transformation: the optimiser.
    """

    def init(params):
        with jax.numpy_dtype_promotion("standard"):
            return transformation.init(params)

    def update(gradient, weight, state, params):
        # Optax raises traced decays to integer powers, which strict promotion refuses.
        with jax.numpy_dtype_promotion("standard"):
            updates, state = transformation.update(gradient, state, params)
        return Step(tree.scale(-1.0, updates), weight, 1.0), state

    return Optimiser(init, update, "unknown")


def _no_weight(params: Params) -> Array:
    return jnp.zeros((), jax.tree.leaves(params)[0].dtype)
