"""Weighted order statistics: what part of each point's weight lies in a range of mass."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.types import Array


def ordered(values: Array, *others: Array) -> tuple[Array, ...]:
    """Sort along the first axis by the values, and the others along with them."""
    others = tuple(jnp.broadcast_to(_column(other, values), values.shape) for other in others)
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
        smaller = _column(takes_smaller, values)
        keeps = jnp.where(smaller, arrays[0] <= theirs[0], arrays[0] >= theirs[0])
        return tuple(
            jnp.where(keeps, own, other) for own, other in zip(arrays, theirs, strict=True)
        ), None

    arrays, _ = jax.lax.scan(stage, padded, _bitonic(whole))
    return tuple(array[:size] for array in arrays)


def between(weights: Array, low: Any, high: Any) -> Array:
    """Return the part of each weight between two masses, where weights are sorted by value.

    A weight of 3 is treated as three weights of 1 would be, one after the other.

    Args:
      weights: along the first axis.
      low: mass before which nothing counts.
      high: mass after which nothing counts.
    """
    after = jnp.cumsum(weights, axis=0)
    return jnp.maximum(jnp.minimum(after, high) - jnp.maximum(after - weights, low), 0)


def weighted_median(values: Array, weights: Array) -> Array:
    """Return the weighted median along the first axis.

    It is the midpoint of all medians where these are an interval, as of an even number of equal
    weights.

    Args:
      values: an array of shape [n, ...].
      weights: an array of shape [n] with the sum 1; values of weight 0 have no effect.
    """
    values, weights = ordered(values, weights)
    mass = jnp.cumsum(weights, axis=0)
    # Sums of n rounded weights that are one half on paper.
    slack = 4 * values.shape[0] * jnp.finfo(mass.dtype).eps
    lower = jnp.min(jnp.where(mass >= 0.5 - slack, values, jnp.inf), axis=0)
    upper = jnp.min(jnp.where(mass > 0.5 + slack, values, jnp.inf), axis=0)
    return 0.5 * (lower + upper)


def distances(points: Array) -> Array:
    """Return the Euclidean distances of all pairs of points, one row after the other."""

    def from_one(point):
        return jnp.sqrt(jnp.sum((points - point[None]) ** 2, axis=1))

    return jax.lax.map(from_one, points)


def nearest(points: Array, weights: Array, mass: Any) -> tuple[Array, Array]:
    """Return the distances of all pairs, and which part of each weight is among the nearest.

    Args:
      points: an array of shape [n, d].
      weights: an array of shape [n].
      mass: the weight of the nearest points to each, itself included.

    Returns:
      Two arrays of shape [n, n], a row for each point.
    """
    apart = distances(points)

    def of_one(row):
        row, weight, index = ordered(row, weights, jnp.arange(row.shape[0], dtype=jnp.int32))
        return jnp.zeros_like(weight).at[index].set(between(weight, 0, mass))

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


def _column(other: Array, like: Array) -> Array:
    return other.reshape(*other.shape, *(1,) * (like.ndim - other.ndim))
