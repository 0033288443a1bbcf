"""Penalties that act entry by entry, beyond the l1 norm: weighted, quadratic, Huber, on an orthant.

Each prox is one elementwise pass over the leaves. The power p of the absolute value has a file of
its own, and so have the non-convex ones.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.memo import memoised
from fcojax.transforms.penalties.l1 import l1
from fcojax.transforms.penalty import (
    Penalty,
    at_strength,
    checked,
    entrywise,
    indicator,
    largest,
    require_penalty,
    require_shapes_of,
    weight,
)
from fcojax.transforms.subdifferentials import from_intervals, of_absolute
from fcojax.transforms.thresholds import soft_threshold
from fcojax.types import PyTree


@memoised
def weighted_l1(weights: PyTree) -> Penalty:
    r"""The weighted l1 norm, :math:`\psi(x) = \lambda \sum_i w_i |x_i|`, lambda given as ``scale``.

    .. math:: \mathrm{prox}(v)_i = \mathrm{sign}(v_i) \max(|v_i| - t \lambda w_i, 0)

    An entry of weight 0 stays free. ``scale_max`` is the largest :math:`|g_i| / w_i`: infinite if
    a free entry has a gradient, since then no strength makes zero optimal.

    Args:
      weights: non-negative, with the structure and shapes of the points.

    Example:
      >>> weighted_l1(jnp.array([1.0, 0.0])).prox(jnp.array([3.0, 0.5]), 1.0, 2.0).tolist()
      [1.0, 0.5]

    References:
      Zou, The adaptive lasso and its oracle properties, 2006.
    """
    least = min((float(np.min(w, initial=0.0)) for w in jax.tree.leaves(weights)), default=0.0)
    if not least >= 0:
        raise ValueError(
            f"weighted_l1 was given a weight of {least}; weights are at least 0, so pass "
            "non-negative weights."
        )

    def value(x, scale):
        require_shapes_of(x, weights, "the weights of weighted_l1")
        sums = jax.tree.map(lambda a, w: jnp.sum(jnp.asarray(w, a.dtype) * jnp.abs(a)), x, weights)
        return at_strength(scale, tree.total(sums))

    def prox(v, step, scale):
        require_shapes_of(v, weights, "the weights of weighted_l1")

        def shrink(leaf, step, w):
            return soft_threshold(leaf, weight(step, scale, leaf) * jnp.asarray(w, leaf.dtype))

        return entrywise(shrink, v, step, weights)

    def scale_max(gradient):
        def ratio(g, w):
            w = jnp.asarray(w, g.dtype)
            return jnp.where(g == 0, 0.0, jnp.abs(g) / w)

        return largest(jax.tree.map(ratio, gradient, weights))

    def subdiff_distance(x, v, scale):
        def interval(leaf, strength, w):
            return of_absolute(leaf, strength * jnp.asarray(w, leaf.dtype))

        require_shapes_of(x, weights, "the weights of weighted_l1")
        return from_intervals(interval, x, v, scale, weights)

    return checked("weighted_l1", Penalty(value, prox, scale_max, True, True, subdiff_distance))


@memoised
def l2_squared() -> Penalty:
    r"""The squared l2 norm, :math:`\psi(x) = \lambda \sum_i x_i^2`, without a factor of 1/2.

    .. math:: \mathrm{prox}(v) = v / (1 + 2 t \lambda)

    This is weight decay. No finite strength makes zero optimal, so ``scale_max`` is ``None``.

    Example:
      >>> l2_squared().prox(jnp.array([3.0, -6.0]), step=0.5, scale=2.0).tolist()
      [1.0, -2.0]
    """

    def value(x, scale):
        return at_strength(scale, tree.vdot(x, x))

    def prox(v, step, scale):
        return entrywise(lambda leaf, step: leaf / (1 + 2 * weight(step, scale, leaf)), v, step)

    def subdiff_distance(x, v, scale):
        return from_intervals(lambda leaf, s: (2 * s * leaf,) * 2, x, v, scale)

    return checked("l2_squared", Penalty(value, prox, None, True, True, subdiff_distance))


@memoised
def elastic_net(l1_fraction: float) -> Penalty:
    r"""A mixture of l1 and squared l2, :math:`\psi(x) = \lambda (r |x|_1 + (1 - r) |x|_2^2)`.

    .. math:: \mathrm{prox}(v) = \mathrm{soft}(v, t \lambda r) / (1 + 2 t \lambda (1 - r))

    For separate strengths :math:`\lambda_1, \lambda_2` pass :math:`\lambda = \lambda_1 +
    \lambda_2` and :math:`r = \lambda_1 / \lambda`. ``scale_max`` is the largest entry of the
    gradient over r, and ``None`` for r = 0.

    Args:
      l1_fraction: r, between 0 and 1.

    Example:
      >>> elastic_net(0.5).prox(jnp.array([3.0, 0.5]), step=1.0, scale=2.0).tolist()
      [0.6666666..., 0.0]

    References:
      Zou and Hastie, Regularization and variable selection via the elastic net, 2005.
    """
    require_fraction(l1_fraction, "elastic_net")
    absolute, square = l1(), l2_squared()

    def value(x, scale):
        return at_strength(l1_fraction, absolute.value(x, scale)) + at_strength(
            1 - l1_fraction, square.value(x, scale)
        )

    def prox(v, step, scale):
        def shrink(leaf, step):
            strength = weight(step, scale, leaf)
            bend = 1 + 2 * (1 - l1_fraction) * strength
            return soft_threshold(leaf, l1_fraction * strength) / bend

        return entrywise(shrink, v, step)

    def scale_max(gradient):
        return largest(jax.tree.map(jnp.abs, gradient)) / l1_fraction

    least = scale_max if l1_fraction > 0 else None

    def subdiff_distance(x, v, scale):
        def interval(leaf, strength):
            bend = 2 * (1 - l1_fraction) * strength * leaf
            low, high = of_absolute(leaf, l1_fraction * strength)
            return low + bend, high + bend

        return from_intervals(interval, x, v, scale)

    return checked("elastic_net", Penalty(value, prox, least, True, True, subdiff_distance))


def require_fraction(l1_fraction: float, name: str) -> None:
    """Raises unless the share of the l1 norm in a mixture is between 0 and 1."""
    if not 0 <= l1_fraction <= 1:
        raise ValueError(
            f"{name} was given l1_fraction {l1_fraction}; it is the share of the l1 norm, so pass "
            "a number from 0 to 1."
        )


@memoised
def huber(knee: float) -> Penalty:
    r"""The Huber function: quadratic near zero, linear beyond the knee :math:`\delta`.

    .. math::

      \psi(x) = \lambda \sum_i h(x_i), \quad h(x) = x^2 / 2 \text{ for } |x| \le \delta,
      \text{ else } \delta (|x| - \delta / 2)

    It is the Moreau envelope of :math:`\delta |x|` with parameter 1 and is smooth, so nothing
    becomes exactly zero and ``scale_max`` is ``None``. With :math:`s = t \lambda`,

    .. math:: \mathrm{prox}(v)_i = v_i / (1 + s) \text{ for } |v_i| \le \delta (1 + s),
      \text{ else } v_i - s \delta\, \mathrm{sign}(v_i)

    with the derivative 1 / (1 + s) where the two meet.

    Args:
      knee: delta, positive.

    Example:
      >>> huber(1.0).prox(jnp.array([1.0, 5.0]), step=1.0, scale=1.0).tolist()
      [0.5, 4.0]

    References:
      Huber, Robust estimation of a location parameter, 1964.
    """
    if not knee > 0:
        raise ValueError(f"huber was given knee {knee}; pass a positive number, or use l1().")

    def value(x, scale):
        def one(leaf):
            inner = jnp.clip(leaf, -knee, knee)
            return jnp.sum(inner * (leaf - 0.5 * inner))

        return at_strength(scale, tree.total(jax.tree.map(one, x)))

    def prox(v, step, scale):
        def shrink(leaf, step):
            strength = weight(step, scale, leaf)
            bend = 1 + strength
            far = leaf - strength * knee * jnp.sign(leaf)
            return jnp.where(jnp.abs(leaf) <= knee * bend, leaf / bend, far)

        return entrywise(shrink, v, step)

    def subdiff_distance(x, v, scale):
        return from_intervals(lambda leaf, s: (s * jnp.clip(leaf, -knee, knee),) * 2, x, v, scale)

    return checked("huber", Penalty(value, prox, None, True, True, subdiff_distance))


@memoised
def on_orthant(penalty: Penalty) -> Penalty:
    r"""The penalty plus the constraint :math:`x \ge 0`, for a penalty that sees only :math:`|x|`.

    .. math:: \mathrm{prox}(v) = \mathrm{prox}_\psi(\max(v, 0))

    This holds when psi depends on the absolute values of the entries and grows with each of
    them: l1, weighted_l1, l2_squared, elastic_net, huber, power, l2, l_inf, group_l2,
    sparse_group, mcp, scad. It does not hold for total_variation or anything else that sees signs.
    The point 0 answers 0.

    Example:
      >>> on_orthant(l1()).prox(jnp.array([3.0, -3.0]), step=1.0, scale=1.0).tolist()
      [2.0, 0.0]
    """
    require_penalty(penalty, "on_orthant")

    def value(x, scale):
        below = largest(jax.tree.map(jnp.negative, x))
        return penalty.value(x, scale) + indicator(below)

    def prox(v, step, scale):
        return penalty.prox(jax.tree.map(jax.nn.relu, v), step, scale)

    inner, gap = penalty.scale_max, penalty.subdiff_distance

    def scale_max(gradient):
        assert inner is not None
        return inner(jax.tree.map(lambda g: -jax.nn.relu(-g), gradient))

    def subdiff_distance(x, v, scale):
        assert gap is not None
        # At zero the set adds all that points outwards, and psi looks the same from either side.
        inwards = jax.tree.map(lambda a, b: jnp.where(a == 0, jax.nn.relu(b), b), x, v)
        outside = largest(jax.tree.map(jnp.negative, x)) > 0
        return jnp.where(outside, jnp.inf, gap(x, inwards, scale))

    return penalty._replace(
        value=value,
        prox=prox,
        scale_max=None if inner is None else scale_max,
        subdiff_distance=None if gap is None else subdiff_distance,
    )


@memoised
def non_negative_l1() -> Penalty:
    r"""The l1 norm on the orthant: :math:`\lambda \sum_i x_i` where :math:`x \ge 0`, else infinite.

    .. math:: \mathrm{prox}(v)_i = \max(v_i - t \lambda, 0)

    Example:
      >>> non_negative_l1().prox(jnp.array([3.0, 0.5, -3.0]), step=1.0, scale=1.0).tolist()
      [2.0, 0.0, 0.0]
    """
    return on_orthant(l1())
