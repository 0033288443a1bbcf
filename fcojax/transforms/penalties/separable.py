"""Separable penalties other than the l1 norm: weighted l1, squared l2, elastic net, Huber.

Each prox is one elementwise pass. See ``lp_power`` and ``nonconvex`` for more.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.calculus.moreau import moreau_envelope
from fcojax.transforms.constraints.indicator import largest
from fcojax.transforms.penalties.l1 import l1, soft_threshold
from fcojax.transforms.penalty import Penalty, entrywise, times_scale
from fcojax.transforms.shapes import require_same_shapes
from fcojax.transforms.subdifferentials import absolute_value_interval, distance_to_intervals
from fcojax.types import FiniteTree, Numbers, Positive

Fraction = Annotated[
    float, Numbers("a number from 0 to 1", lambda values: (values >= 0) & (values <= 1))
]


@factory
def weighted_l1(weights: FiniteTree) -> Penalty:
    r"""Return the weighted l1 norm, :math:`\psi(x) = \lambda \sum_i w_i |x_i|`.

    .. math:: \mathrm{prox}(v)_i = \mathrm{sign}(v_i) \max(|v_i| - t \lambda w_i, 0)

    An entry of weight 0 is not penalised. ``scale_max`` is the largest :math:`|g_i| / w_i`, which
    is infinite if an entry of weight 0 has a gradient.

    Args:
      weights: w, at least 0, with the structure and shapes of the points.

    Example:
      >>> weighted_l1(jnp.array([1.0, 0.0])).prox(jnp.array([3.0, 0.5]), 1.0, 2.0).tolist()
      [1.0, 0.5]

    References:
      Zou, "The adaptive lasso and its oracle properties", 2006.
    """
    least = min((float(np.min(w, initial=0.0)) for w in jax.tree.leaves(weights)), default=0.0)
    if not least >= 0:
        raise ValueError(f"the smallest weight is {least}; pass weights of at least 0.")

    def value(x, scale):
        require_same_shapes(x, weights, "the weights of weighted_l1")
        sums = jax.tree.map(
            lambda a, w: jnp.sum(jnp.asarray(w, a.dtype) * jnp.abs(a)), tree.floats(x), weights
        )
        return times_scale(scale, tree.total(sums))

    def prox(v, step, scale):
        require_same_shapes(v, weights, "the weights of weighted_l1")

        def shrink(leaf, step, scale, w):
            return soft_threshold(leaf, step * scale * jnp.asarray(w, leaf.dtype))

        return entrywise(shrink, v, step, scale, weights)

    def scale_max(gradient):
        def ratio(g, w):
            w = jnp.asarray(w, g.dtype)
            return jnp.where(g == 0, 0.0, jnp.abs(g) / w)

        return largest(jax.tree.map(ratio, tree.floats(gradient), weights))

    def subdiff_distance(x, v, scale):
        def interval(leaf, strength, w):
            return absolute_value_interval(leaf, strength * jnp.asarray(w, leaf.dtype))

        require_same_shapes(x, weights, "the weights of weighted_l1")
        return distance_to_intervals(interval, x, v, scale, weights)

    return Penalty(value, prox, scale_max, separable=True, subdiff_distance=subdiff_distance)


@factory
def l2_squared() -> Penalty:
    r"""Return the squared l2 norm, :math:`\psi(x) = \lambda \sum_i x_i^2`, without a factor 1/2.

    .. math:: \mathrm{prox}(v) = v / (1 + 2 t \lambda)

    This is weight decay. No finite scale makes zero optimal, so ``scale_max`` is ``None``.

    Example:
      >>> l2_squared().prox(jnp.array([3.0, -6.0]), step=0.5, scale=2.0).tolist()
      [1.0, -2.0]
    """

    def value(x, scale):
        return times_scale(scale, tree.vdot(x, x))

    def prox(v, step, scale):
        return entrywise(lambda leaf, step, scale: leaf / (1 + 2 * (step * scale)), v, step, scale)

    def subdiff_distance(x, v, scale):
        return distance_to_intervals(lambda leaf, s: (2 * s * leaf,) * 2, x, v, scale)

    return Penalty(value, prox, separable=True, subdiff_distance=subdiff_distance)


@factory
def elastic_net(l1_fraction: Fraction) -> Penalty:
    r"""Return the elastic net, :math:`\psi(x) = \lambda (r |x|_1 + (1 - r) |x|_2^2)`.

    .. math:: \mathrm{prox}(v) = \mathrm{soft}(v, t \lambda r) / (1 + 2 t \lambda (1 - r))

    For separate strengths :math:`\lambda_1, \lambda_2` pass :math:`\lambda = \lambda_1 +
    \lambda_2` and :math:`r = \lambda_1 / \lambda`. ``scale_max`` is the largest absolute entry of
    the gradient at zero over r; it is ``None`` for r = 0.

    Args:
      l1_fraction: r, from 0 to 1.

    Example:
      >>> elastic_net(0.5).prox(jnp.array([3.0, 0.5]), step=1.0, scale=2.0).tolist()
      [0.6666666..., 0.0]

    References:
      Zou and Hastie, "Regularization and variable selection via the elastic net", 2005.
    """
    absolute, square = l1(), l2_squared()

    def value(x, scale):
        return times_scale(l1_fraction, absolute.value(x, scale)) + times_scale(
            1 - l1_fraction, square.value(x, scale)
        )

    def prox(v, step, scale):
        def shrink(leaf, step, scale):
            weight = step * scale
            denominator = 1 + 2 * (1 - l1_fraction) * weight
            return soft_threshold(leaf, l1_fraction * weight) / denominator

        return entrywise(shrink, v, step, scale)

    def scale_max(gradient):
        return tree.max_abs(gradient) / l1_fraction

    def subdiff_distance(x, v, scale):
        def interval(leaf, strength):
            smooth = 2 * (1 - l1_fraction) * strength * leaf
            low, high = absolute_value_interval(leaf, l1_fraction * strength)
            return low + smooth, high + smooth

        return distance_to_intervals(interval, x, v, scale)

    least_scale = scale_max if l1_fraction > 0 else None
    return Penalty(value, prox, least_scale, separable=True, subdiff_distance=subdiff_distance)


@factory
def huber(knee: Positive) -> Penalty:
    r"""Return the Huber function, quadratic up to :math:`\delta` and linear beyond.

    .. math::

      \psi(x) = \lambda \sum_i h(x_i), \quad h(x) = x^2 / 2 \text{ for } |x| \le \delta,
      \text{ else } \delta (|x| - \delta / 2)

    It is the Moreau envelope of :math:`\delta |x|` with parameter 1. It is smooth, so no entry
    becomes exactly zero and ``scale_max`` is ``None``. With :math:`s = t \lambda`,

    .. math:: \mathrm{prox}(v)_i = v_i / (1 + s) \text{ for } |v_i| \le \delta (1 + s),
      \text{ else } v_i - s \delta\, \mathrm{sign}(v_i)

    with derivative 1 / (1 + s) at :math:`|v_i| = \delta (1 + s)`.

    Args:
      knee: delta, above 0.

    Example:
      >>> huber(1.0).prox(jnp.array([1.0, 5.0]), step=1.0, scale=1.0).tolist()
      [0.5, 4.0]

    References:
      Huber, "Robust estimation of a location parameter", 1964.
    """
    envelope = moreau_envelope(l1())

    def value(x, scale):
        return times_scale(scale, envelope(x, 1.0, knee))

    def prox(v, step, scale):
        def shrink(leaf, step, scale):
            weight = step * scale
            denominator = 1 + weight
            linear = leaf - weight * knee * jnp.sign(leaf)
            return jnp.where(jnp.abs(leaf) <= knee * denominator, leaf / denominator, linear)

        return entrywise(shrink, v, step, scale)

    def subdiff_distance(x, v, scale):
        return distance_to_intervals(
            lambda leaf, s: (s * jnp.clip(leaf, -knee, knee),) * 2, x, v, scale
        )

    return Penalty(value, prox, separable=True, subdiff_distance=subdiff_distance)
