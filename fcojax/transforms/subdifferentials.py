r"""Distances to subdifferentials and normal cones, for certificates of optimality.

If v is minus a gradient of f, the distance of v from :math:`\partial \psi(x)` is that of zero from
the subdifferential of f + psi, and it is zero exactly where x is optimal.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.transforms.penalties.l1 import soft_threshold
from fcojax.transforms.penalty import strength
from fcojax.types import Array, Params, PyTree, Scalar
from fcojax.xla.linalg import singular_values, thin_svd

# (leaf, strength, *other leaves) -> (least, greatest) subgradient of each entry.
Interval = Callable[..., tuple[Array, Array]]


def distance_to_intervals(
    interval: Interval, x: Params, v: Params, scale: Scalar, *others: PyTree
) -> Array:
    """Return the distance of v from the subdifferential of a separable psi, a product of intervals.

    ``others`` are further arguments of ``interval``, pytrees like x.
    """

    def excess(leaf, v_leaf, *rest):
        least, greatest = interval(leaf, strength(scale, leaf), *rest)
        return jnp.maximum(jnp.maximum(least - v_leaf, v_leaf - greatest), 0)

    return tree.euclidean_norm(jax.tree.map(excess, tree.floats(x), tree.floats(v), *others))


def absolute_value_interval(leaf: Array, weight: Array) -> tuple[Array, Array]:
    """Return the smallest and largest subgradient of ``weight * |x|``."""
    zero = leaf == 0
    sign = jnp.sign(leaf)
    return weight * jnp.where(zero, -1, sign), weight * jnp.where(zero, 1, sign)


def bounds_interval(leaf: Array, low: Array | float, high: Array | float) -> tuple[Array, Array]:
    """Return the normal cone of an interval as bounds; all numbers if its ends are equal."""
    return jnp.where(leaf <= low, -jnp.inf, 0), jnp.where(leaf >= high, jnp.inf, 0)


def distance_to_nuclear(x: Array, v: Array, weight: Array) -> Array:
    r"""Return the distance of a matrix v from the subdifferential of ``weight * |x|_*``.

    For x = U S W^T of rank r the subdifferential of the nuclear norm is the set of
    :math:`U W^T + M`, where the rows and columns of M are orthogonal to those of x and no singular
    value of M exceeds 1.
    """
    finite = jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(v))
    x, v = jnp.where(finite, x, 0), jnp.where(finite, v, 0)
    left, values, right = thin_svd(x)
    rounding = 8 * jnp.finfo(x.dtype).eps * max(x.shape) * values[0]
    kept = (values > rounding).astype(x.dtype)
    left, right = left * kept[None, :], right * kept[:, None]
    rest = v - left @ (left.T @ v)
    rest = rest - (rest @ right.T) @ right
    in_spaces = v - rest - weight * (left @ right)
    excess = soft_threshold(singular_values(rest), weight)
    return jnp.where(finite, tree.euclidean_norm([in_spaces, excess]), jnp.nan)


def distance_to_ray(v: Params, direction: Params, on_boundary: Array) -> Array:
    """Distance of v from the multiples of an outward normal, or from 0 off a boundary."""
    square = tree.vdot(direction, direction)
    multiple = jnp.maximum(tree.vdot(v, direction), 0) / jnp.where(square > 0, square, 1)
    return tree.euclidean_norm(tree.add_scaled(v, jnp.where(on_boundary, -multiple, 0), direction))


def distance_to_level(v: Array, active: Array, least: Array | float) -> Array:
    r"""Return the distance of v from the vectors with active entries c and others at most c.

    The nearest level c, of at least ``least``, is the maximum over k of the mean of the active
    entries of v and the k largest others.
    """
    dtype = v.dtype
    others = -jnp.sort(-jnp.where(active, -jnp.inf, v))
    active_sum, active_count = jnp.sum(jnp.where(active, v, 0)), jnp.sum(active, dtype=dtype)
    counts = active_count + 1 + jnp.arange(v.size, dtype=dtype)
    active_mean = active_sum / jnp.maximum(active_count, 1)
    level = jnp.maximum(active_mean, jnp.max((active_sum + jnp.cumsum(others)) / counts))
    level = jnp.maximum(level, least)
    return tree.euclidean_norm(jnp.where(active, v - level, jnp.maximum(v - level, 0)))


def is_on_sphere(size: Array, radius: Array) -> Array:
    """Return whether a norm equals a radius, with the tolerance of an indicator."""
    return size >= radius * (1 - np.sqrt(jnp.finfo(size.dtype).eps))
