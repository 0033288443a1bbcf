"""A collector that keeps all terms of a round, for rules that need the whole cohort at once."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.engine.aggregator import Collector
from fcojax.types import Array, PyTree


class Stacked(NamedTuple):
    """All terms of one round, in the order of its draw.

    Attributes:
      terms: with a leading axis of places; zeros where no client counts.
      shares: weight of each place, as a share of the cohort's; 0 where no client counts.
    """

    terms: PyTree
    shares: Array


def _no_rows(shapes: PyTree, num_places: int) -> Stacked:
    rows = jax.tree.map(
        lambda leaf: jnp.zeros((num_places, *leaf.shape), tree.mean_dtype(leaf.dtype)), shapes
    )
    # Zeros, not NaN: the stacks of devices are added up, and each row is written on one of them.
    return Stacked(rows, jnp.zeros(num_places, jnp.result_type(float)))


def _add_rows(stacked: Stacked, terms: PyTree, weights: Array, places: Array) -> Stacked:
    # Writes beyond the last place are dropped.
    places = jnp.where(weights > 0, places, stacked.shares.shape[0])

    def write(rows, leaf):
        return rows.at[places].set(leaf.astype(rows.dtype), mode="drop")

    return jax.tree.map(write, stacked, Stacked(terms, weights))


STACK = Collector(_no_rows, _add_rows)
