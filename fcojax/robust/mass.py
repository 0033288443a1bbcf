"""Weighted order statistics: the part of each point's weight that lies in a range of mass."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.types import Array


def ordered(values: Array, *others: Array) -> tuple[Array, ...]:
    """Sort along the first axis by the values, and the others along with them."""
    others = tuple(jnp.broadcast_to(column(other, values), values.shape) for other in others)
    if values.ndim == 1:
        return jax.lax.sort((values, *others), dimension=0, num_keys=1)
    size = values.shape[0]
    whole = 1 << (size - 1).bit_length()
    fill = [(0, whole - size)] + [(0, 0)] * (values.ndim - 1)
    padded = (
        jnp.pad(values, fill, constant_values=jnp.inf),
        *(jnp.pad(other, fill) for other in others),
    )

    def stage(arrays, step):
        partner, takes_smaller = step
        theirs = [array[partner] for array in arrays]
        smaller = column(takes_smaller, values)
        keeps = jnp.where(smaller, arrays[0] <= theirs[0], arrays[0] >= theirs[0])
        return tuple(
            jnp.where(keeps, own, other) for own, other in zip(arrays, theirs, strict=True)
        ), None

    arrays, _ = jax.lax.scan(stage, padded, _bitonic(whole))
    return tuple(array[:size] for array in arrays)


def rounding(num_points: int, dtype: Any) -> float:
    """Return a bound on the relative rounding of sums over points, which are summed in pairs."""
    return 4.0 * (1 + num_points.bit_length()) * float(jnp.finfo(dtype).eps)


def between(weights: Array, low: Any, high: Any, keys: Array | None = None) -> Array:
    """Return the part of each weight between two masses, where weights are sorted by value.

    A weight of 3 is treated like three weights of 1, one after the other. A bound that meets the
    end of a weight up to rounding is at that end: in float32 1 - 1/3 exceeds the sum of two thirds
    by 1.8e-7, and with that weight a third point of 1e20 would count.

    Args:
      weights: along the first axis.
      low: share of the mass before which nothing counts.
      high: share of the mass after which nothing counts.
      keys: numbers of 0 or more by which the weights are sorted, of which a cut takes equal ones by
        equal shares; ``None`` if the caller's result does not depend on their order.
    """
    after = jnp.cumsum(weights, axis=0)
    before = jnp.concatenate([jnp.zeros_like(after[:1]), after[:-1]])
    whole = after[-1:]
    slack = rounding(weights.shape[0], weights.dtype)
    if keys is not None:
        # Equal keys form a group, and each weight gets the range of mass of its group.
        apart = keys[1:] > keys[:-1] * (1 + slack)
        edge = jnp.ones_like(apart[:1], shape=(1, *keys.shape[1:]))
        first, last = jnp.concatenate([edge, apart]), jnp.concatenate([apart, edge])
        before = jax.lax.cummax(jnp.where(first, before, -jnp.inf), axis=0)
        after = jax.lax.cummin(jnp.where(last, after, jnp.inf), axis=0, reverse=True)
    low, high = low * whole, high * whole
    near_low, near_high = (jnp.abs(after - bound) <= slack * whole for bound in (low, high))
    # A bound within rounding of the end of a weight moves inwards to it, so that no further point
    # counts. Bounds at 0 and at the whole mass stay.
    inner = jnp.max(jnp.where(near_low & (low > 0), after, low), axis=0, keepdims=True)
    outer = jnp.min(jnp.where(near_high & (high < whole), after, high), axis=0, keepdims=True)
    low, high = jnp.maximum(low, inner), jnp.minimum(high, outer)
    within = jnp.maximum(jnp.minimum(after, high) - jnp.maximum(before, low), 0)
    return weights * within / jnp.where(after > before, after - before, 1)


def weighted_median(values: Array, weights: Array) -> Array:
    """Return the weighted median along the first axis.

    If the medians form an interval, as with an even number of equal weights, it is the midpoint.
    Values of weight 0 have no effect.
    """
    values, weights = ordered(values, weights)
    mass = jnp.cumsum(weights, axis=0)
    # Sums of rounded weights that are one half in exact arithmetic may be off by this much.
    slack = rounding(values.shape[0], mass.dtype)
    lower = jnp.min(jnp.where(mass >= (0.5 - slack) * mass[-1:], values, jnp.inf), axis=0)
    upper = jnp.min(jnp.where(mass > (0.5 + slack) * mass[-1:], values, jnp.inf), axis=0)
    return 0.5 * lower + 0.5 * upper


def lengths(vectors: Array) -> Array:
    """Return the Euclidean norms of rows; one that overflows is the largest finite number."""
    return jnp.minimum(jax.vmap(tree.euclidean_norm)(vectors), jnp.finfo(vectors.dtype).max)


def nearest(points: Array, weights: Array, mass: Any) -> tuple[Array, Array]:
    """Return the distances of all pairs, and the part of each weight that is among the nearest.

    A row for each point; ``mass`` is the share of the weight that is nearest, with its own.
    """
    apart = jax.lax.map(lambda point: lengths(points - point[None]), points)

    def of_one(row):
        row, weight, index = ordered(row, weights, jnp.arange(row.shape[0], dtype=jnp.int32))
        return jnp.zeros_like(weight).at[index].set(between(weight, 0, mass, row))

    return apart, jax.vmap(of_one)(jnp.where(weights > 0, apart, jnp.inf))


def _bitonic(size: int) -> tuple[Array, Array]:
    """Return the stages of a bitonic sort: each place's partner, and whether it takes the smaller.

    All columns are sorted together by a few vector operations; on a CPU with ten rows of a thousand
    columns that took a quarter of the time of ``jax.lax.sort``.
    """
    place, length = np.arange(size), 2
    partners, smaller = [place], [np.ones(size, bool)]  # a stage that changes nothing, for size 1
    while length <= size:
        distance = length // 2
        while distance:
            partner = place ^ distance
            partners.append(partner)
            smaller.append((place < partner) == ((place & length) == 0))
            distance //= 2
        length *= 2
    return jnp.asarray(np.stack(partners), jnp.int32), jnp.asarray(np.stack(smaller))


def column(other: Array, like: Array) -> Array:
    """Return an array with trailing axes of size one, so that it broadcasts along the first."""
    return other.reshape(*other.shape, *(1,) * (like.ndim - other.ndim))
