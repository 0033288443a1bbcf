"""How the uploads of a round are accumulated: as one weighted sum, or all of them.

A collector adds one chunk of clients after the other to an array, and devices add up theirs. So the
chunks and the devices are the same to a rule that needs the whole cohort as to a sum.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.types import Array, PyTree


class Collector(NamedTuple):
    """How the clients of a round are put together; the results of devices are added up.

    Attributes:
      start: ``(shapes, num_places) -> collected``: before the first client, given the shapes of one
        client's term and the number of places in a cohort.
      add: ``(collected, terms, weights, places) -> collected``: with one chunk more, where
        ``terms`` has a leading axis of clients. A client that does not count has the weight 0, and
        its term may be anything, also NaN.
    """

    start: Callable[[PyTree, int], PyTree]
    add: Callable[[PyTree, PyTree, Array, Array], PyTree]


class Cohort(NamedTuple):
    """The uploads of one round, in the order of its draw.

    Attributes:
      uploads: with a leading axis of places; zeros where no client counts.
      shares: weight of each place, as a share of the cohort's; 0 where no client counts.
    """

    uploads: PyTree
    shares: Array


def _no_sum(shapes: PyTree, num_places: int) -> PyTree:
    del num_places
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, tree.mean_dtype(leaf.dtype)), shapes)


def _add_to_sum(total: PyTree, terms: PyTree, weights: Array, places: Array) -> PyTree:
    del places

    def accumulate(sum_, leaf):
        counted = _column(weights, leaf) > 0
        masked = jnp.where(counted, leaf.astype(sum_.dtype), 0)  # zero times NaN is NaN
        return sum_ + jnp.sum(_column(weights.astype(sum_.dtype), leaf) * masked, axis=0)

    return jax.tree.map(accumulate, total, terms)


def _nobody(shapes: PyTree, num_places: int) -> Cohort:
    rows = jax.tree.map(
        lambda leaf: jnp.zeros((num_places, *leaf.shape), tree.mean_dtype(leaf.dtype)), shapes
    )
    return Cohort(rows, jnp.zeros(num_places, jnp.result_type(float)))


def _add_rows(cohort: Cohort, terms: PyTree, weights: Array, places: Array) -> Cohort:
    # Writes beyond the last place are dropped.
    places = jnp.where(weights > 0, places, cohort.shares.shape[0])

    def write(rows, leaf):
        return rows.at[places].set(leaf.astype(rows.dtype), mode="drop")

    return jax.tree.map(write, cohort, Cohort(terms, weights))


def _column(weights: Array, like: Array) -> Array:
    return weights.reshape(-1, *(1,) * (like.ndim - 1))


WEIGHTED_SUM = Collector(_no_sum, _add_to_sum)
WHOLE_COHORT = Collector(_nobody, _add_rows)
