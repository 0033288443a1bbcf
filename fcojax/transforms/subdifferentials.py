r"""Distances to subdifferentials and normal cones, for the certificates of optimality.

Where v is minus a gradient of f, the distance of v from :math:`\partial \psi(x)` is that of zero
from the subdifferential of f + psi: zero exactly where x is optimal.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.factorisations import singular_values, thin_svd
from fcojax.transforms.lengths import length
from fcojax.transforms.thresholds import onto_l1_ball, onto_simplex, soft_threshold
from fcojax.types import Array, Params, PyTree, Scalar

# Subgradients of one entry: (entries, strength, *others) -> (least, greatest), leaf by leaf.
Interval = Callable[..., tuple[Array, Array]]


def from_intervals(
    interval: Interval, x: Params, v: Params, scale: Scalar, *others: PyTree
) -> Array:
    """The distance of v from a product of intervals, which a separable psi has."""

    def off(leaf, slope, *rest):
        least, greatest = interval(leaf, _strength(scale, leaf), *rest)
        return jnp.maximum(jnp.maximum(least - slope, slope - greatest), 0)

    return length(jax.tree.map(off, x, v, *others))


def of_absolute(leaf: Array, weight: Array) -> tuple[Array, Array]:
    """The subgradients of ``weight * |x|``."""
    zero = leaf == 0
    sign = jnp.sign(leaf)
    return weight * jnp.where(zero, -1, sign), weight * jnp.where(zero, 1, sign)


def of_bounds(leaf: Array, low: Array | float, high: Array | float) -> tuple[Array, Array]:
    """The normal cone of an interval; everything where its bounds are equal."""
    return jnp.where(leaf <= low, -jnp.inf, 0), jnp.where(leaf >= high, jnp.inf, 0)


def off_largest(x: Array, v: Array, radius: Array) -> Array:
    """The distance of a flat v from the subdifferential of ``radius * max |x_i|``."""
    size = jnp.abs(x)
    most = jnp.max(size)
    top = size == most
    along = jnp.sign(x) * v
    # What lies more than the radius below the largest entry has no part in the projection.
    lowest = jnp.max(jnp.where(top, along, -jnp.inf)) - radius
    entries = jnp.where(top, along, lowest)
    off_top = jnp.where(top, along - onto_simplex(entries, radius), v)
    off_ball = v - onto_l1_ball(v, radius)
    return length(jnp.where(most > 0, off_top, off_ball))


def off_nuclear(x: Array, v: Array, strength: Array) -> Array:
    r"""The distance of a matrix from the subdifferential of the nuclear norm, times its strength.

    With x = U S W^T of rank r, that is :math:`U W^T + M`, where M has its rows and columns
    orthogonal to those of x and no singular value above 1.
    """
    finite = jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(v))
    x, v = jnp.where(finite, x, 0), jnp.where(finite, v, 0)
    left, values, right = thin_svd(x)
    rounding = 8 * jnp.finfo(x.dtype).eps * max(x.shape) * values[0]
    kept = (values > rounding).astype(x.dtype)
    left, right = left * kept[None, :], right * kept[:, None]
    rest = v - left @ (left.T @ v)
    rest = rest - (rest @ right.T) @ right
    near = v - rest - strength * (left @ right)
    over = soft_threshold(singular_values(rest), strength)
    return jnp.where(finite, length([near, over]), jnp.nan)


def off_ray(v: Params, direction: Params, on_boundary: Array) -> Array:
    """The distance of v from the multiples, zero or more, of a direction; from 0 off a boundary."""
    size = tree.vdot(direction, direction)
    share = jnp.maximum(tree.vdot(v, direction), 0) / jnp.where(size > 0, size, 1)
    return length(tree.add_scaled(v, jnp.where(on_boundary, -share, 0), direction))


def off_level(along: Array, active: Array, least: Array | float) -> Array:
    r"""The distance from entries equal to a level where active and at most that elsewhere.

    The level is any number of at least ``least``: the best one is the largest mean of the active
    entries and the k greatest others, over k.
    """
    number = along.dtype
    others = -jnp.sort(-jnp.where(active, -jnp.inf, along))
    whole, active_count = jnp.sum(jnp.where(active, along, 0)), jnp.sum(active, dtype=number)
    counts = active_count + 1 + jnp.arange(along.size, dtype=number)
    first = whole / jnp.maximum(active_count, 1)
    level = jnp.maximum(first, jnp.max((whole + jnp.cumsum(others)) / counts))
    level = jnp.maximum(level, least)
    return length(jnp.where(active, along - level, jnp.maximum(along - level, 0)))


def nearly_at(size: Array, radius: Array) -> Array:
    """Whether a norm is at a radius, up to the rounding that an indicator allows."""
    return size >= radius * (1 - np.sqrt(jnp.finfo(size.dtype).eps))


def _strength(scale: Scalar, leaf: Array) -> Array:
    number = jnp.asarray(scale, leaf.dtype)
    return jnp.maximum(number, 0)
