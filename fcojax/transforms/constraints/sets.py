"""Constraint sets: balls, boxes, affine sets, vectors with at most k nonzeros.

A constraint is the indicator of its set, so its prox is the projection for every step, including
zero. ``scale`` is the radius of a ball; sets that the factory fixes ignore it.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.indicators import indicator, largest
from fcojax.transforms.penalty import Penalty, strength
from fcojax.transforms.shapes import filled, flattened, require_ordered
from fcojax.transforms.stable_norms import quotient
from fcojax.transforms.subdifferentials import (
    bounds_interval,
    distance_to_intervals,
    distance_to_ray,
    is_on_sphere,
)
from fcojax.transforms.thresholds import clipped
from fcojax.types import CountOrZero, NumberTree


@factory
def l2_ball() -> Penalty:
    r"""Return the ball :math:`\{|x|_2 \le r\}` over all leaves jointly; ``scale`` is r.

    .. math:: \mathrm{prox}(v) = \min(1, r / |v|_2)\, v

    A point of the ball is returned unchanged, and the derivative there is the identity, also on the
    boundary.

    Example:
      >>> l2_ball().prox(jnp.array([3.0, 4.0]), step=1.0, scale=2.5).tolist()
      [1.5, 2.0]
    """

    def value(x, scale):
        norm = tree.euclidean_norm(x)
        return indicator(norm - strength(scale, norm), scale)

    def prox(v, step, scale):
        # optax.projections.projection_l2_ball is NaN if the point and the radius are both 0.
        wide = tree.floats(v)
        norm = tree.euclidean_norm(wide)
        radius = strength(scale, norm)
        outside = ~(norm <= radius)  # true for NaN, so that NaN is returned
        size = jnp.where(outside, norm, 1.0)
        ratio = quotient(radius, size)
        # A ratio that underflows is applied as two factors, whose product with v may not underflow.
        tiny = ratio < jnp.finfo(ratio.dtype).tiny
        first = jnp.where(tiny, quotient(jnp.ones_like(size), size), 1.0)
        second = jnp.where(tiny, radius, ratio)
        inside = jnp.where(radius > 0, 1.0, 0.0)
        first, second = (jnp.where(outside, factor, inside) for factor in (first, second))
        return tree.cast_like(tree.scale(second, tree.scale(first, wide)), v)

    def subdiff_distance(x, v, scale):
        x, v = tree.floats((x, v))
        norm = tree.euclidean_norm(x)
        radius = strength(scale, norm)
        return jnp.where(radius > 0, distance_to_ray(v, x, is_on_sphere(norm, radius)), 0)

    return Penalty(value, prox, subdiff_distance=subdiff_distance)


@factory
def box(lower: NumberTree, upper: NumberTree) -> Penalty:
    r"""Return the box :math:`\{l_i \le x_i \le u_i\}`; ``scale`` has no effect.

    .. math:: \mathrm{prox}(v)_i = \mathrm{clip}(v_i, l_i, u_i)

    Args:
      lower: l, one number for all entries, or a pytree with the structure and shapes of the
        points. Minus infinity means no bound.
      upper: u, in the same form.

    Example:
      >>> box(0.0, 1.0).prox(jnp.array([3.0, -0.5]), step=1.0, scale=1.0).tolist()
      [1.0, 0.0]
    """
    lower, upper = jax.tree.map(np.asarray, (lower, upper))
    require_ordered(lower, upper)

    def bounds(x):
        return filled(lower, x, "lower"), filled(upper, x, "upper")

    def value(x, scale):
        x = tree.floats(x)  # bounds of integers would be rounded
        least, most = bounds(x)
        outside = jax.tree.map(lambda a, lo, up: jnp.maximum(lo - a, a - up), x, least, most)
        return indicator(largest(outside))

    def prox(v, step, scale):
        wide = tree.floats(v)
        return tree.cast_like(jax.tree.map(clipped, wide, *bounds(wide)), v)

    def subdiff_distance(x, v, scale):
        def interval(leaf, strength, low, high):
            return bounds_interval(leaf, low, high)

        x = tree.floats(x)
        return distance_to_intervals(interval, x, v, scale, *bounds(x))

    return Penalty(value, prox, separable=True, subdiff_distance=subdiff_distance)


@factory
def affine(matrix: ArrayLike, right_side: ArrayLike) -> Penalty:
    r"""Return the affine set :math:`\{A x = b\}`, x being all leaves jointly.

    .. math:: \mathrm{prox}(v) = v - A^+ (A v - b)

    The factory decomposes A once, in float64; a projection then consists of products with
    orthonormal rows. Linearly dependent equations are dropped. Step and scale have no effect.

    Args:
      matrix: A, of shape (equations, entries).
      right_side: b, one number per equation.

    Example:
      >>> sums_to_one = affine(jnp.ones((1, 2)), jnp.ones(1))
      >>> sums_to_one.prox(jnp.array([2.0, 1.5]), step=1.0, scale=1.0).round(6).tolist()
      [0.75, 0.25]

    References:
      Parikh and Boyd, "Proximal Algorithms", 2014, section 6.2.
    """
    left_side, right_side = np.asarray(matrix, np.float64), np.asarray(right_side, np.float64)
    shape = left_side.shape
    if left_side.ndim != 2 or right_side.shape != shape[:1]:
        raise ValueError(
            f"the matrix has shape {shape} and the right side {right_side.shape}; pass shapes "
            "(equations, entries) and (equations,)."
        )
    left, values, rows = np.linalg.svd(left_side, full_matrices=False)
    rounding = np.max(values, initial=0.0) * max(shape) * np.finfo(np.float64).eps
    rank = int(np.sum(values > rounding))
    rows, levels = rows[:rank], (left.T @ right_side)[:rank] / values[:rank]
    gap = np.max(np.abs(left_side @ (rows.T @ levels) - right_side), initial=0.0)
    if gap > 1e-9 * (1 + np.max(np.abs(right_side), initial=0.0)):
        raise ValueError(
            f"the equations have no solution, the smallest residual is {gap:.2g}; remove equations "
            f"that contradict each other."
        )

    def residual(flat):
        return jnp.asarray(rows, flat.dtype) @ flat - jnp.asarray(levels, flat.dtype)

    def value(x, scale):
        flat = ravel_pytree(x)[0]  # with the tolerance of its own dtype
        size = jnp.max(jnp.abs(flat), initial=np.max(np.abs(levels), initial=0.0))
        return indicator(jnp.max(jnp.abs(residual(flat)), initial=0.0), size)

    def prox(v, step, scale):
        flat, unravel = flattened(v)
        for _ in range(2):  # the second corrects the rounding error for a v far from the set
            flat = flat - jnp.asarray(rows.T, flat.dtype) @ residual(flat)
        return unravel(flat)

    def subdiff_distance(x, v, scale):
        flat = flattened(v)[0]
        inner = jnp.asarray(rows, flat.dtype)
        return tree.euclidean_norm(flat - inner.T @ (inner @ flat))

    return Penalty(value, prox, subdiff_distance=subdiff_distance)


@factory
def l0_ball(num_nonzero: CountOrZero) -> Penalty:
    r"""Return the set of vectors with at most k nonzero entries, over all leaves jointly.

    .. math:: \mathrm{prox}(v) \in \mathrm{argmin}_{|x|_0 \le k} |x - v|^2

    It keeps the k entries of largest absolute value, the earlier one of a tie, and every entry if
    there are at most k. Step and scale have no effect.

    Args:
      num_nonzero: k, at least 0.

    Example:
      >>> l0_ball(1).prox(jnp.array([2.0, -3.0, 3.0]), step=1.0, scale=1.0).tolist()
      [0.0, -3.0, 0.0]

    References:
      Blumensath and Davies, "Iterative hard thresholding for compressed sensing", 2009.
    """

    def value(x, scale):
        count = tree.total(jax.tree.map(lambda leaf: jnp.sum(leaf != 0), x))
        zero = tree.total(jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), x))
        return jnp.where(count <= num_nonzero, zero, jnp.inf)

    def prox(v, step, scale):
        flat, unravel = flattened(v)
        if num_nonzero >= flat.size:
            return v
        _, kept = jax.lax.top_k(jnp.abs(flat), num_nonzero)
        return unravel(jnp.zeros_like(flat).at[kept].set(flat[kept]))

    return Penalty(value, prox, convex=False)
