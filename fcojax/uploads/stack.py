"""All uploads of a round side by side, for aggregators that need them together."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.types import Array, Key, PyTree
from fcojax.uploads.contract import Aggregator, Collector, RoundWeights


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


def combined(
    aggregator: Aggregator,
    hparams: Any,
    payloads: list,
    shares: Array,
    weights: RoundWeights,
    memory: PyTree,
    key: Key,
) -> tuple[PyTree, PyTree]:
    """Return what an aggregator makes of all payloads of a round, and its new memory.

    ``payloads`` has a leading axis of places, and ``shares`` the weight of each, as in ``Stacked``.
    """
    terms = jax.vmap(lambda payload: aggregator.term(hparams, payload, memory))(payloads)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), terms)
    places = jnp.arange(shares.shape[0], dtype=jnp.int32)
    collected = aggregator.collect.start(shapes, shares.shape[0])
    collected = aggregator.collect.add(collected, terms, shares, places)
    return aggregator.finish(hparams, collected, weights, memory, key)
