"""One mean of uploads that a server has received over a network; ``run`` does it chunk by chunk."""

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import ClientResult
from fcojax.engine.aggregation import (
    RoundResult,
    TotalWeights,
    add_clients,
    contribution_of,
    empty_tally,
    finish_round,
)
from fcojax.engine.aggregator import Aggregator
from fcojax.types import Array, Key, PyTree


def aggregate(
    aggregator: Aggregator,
    hparams: PyTree,
    results: ClientResult,
    weights: Array,
    totals: TotalWeights,
    memory: PyTree,
    key: Key,
    finite: Array,
    arrives: Array | None = None,
) -> tuple[RoundResult, Array]:
    """Return the result of a round from the results of its clients.

    Args:
      aggregator: the plan's aggregator.
      hparams: the hyperparameters of the round.
      results: the clients' results, with a leading axis of clients and decoded uploads. States are
        not read.
      weights: p_m of each client, 0 if it is absent.
      totals: total weights of the round.
      memory: the aggregator's memory.
      key: the aggregator's key in this round.
      finite: whether each result is finite.
      arrives: whether each upload arrived; ``None`` if all did.

    Returns:
      The result, and which clients are counted.
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), results)
    clients = jax.vmap(lambda one: contribution_of(aggregator, hparams, memory, one))(results)
    first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), clients)
    # Shares, as in `one_round`: the sum does not overflow if the mean is finite.
    shares = weights / jnp.where(totals.cohort > 0, totals.cohort, 1)
    places = jnp.arange(weights.shape[0], dtype=jnp.int32)
    tally = empty_tally(aggregator, first, weights.shape[0], shares.dtype)
    tally, counted = add_clients(aggregator, tally, clients, finite, arrives, shares, places)
    found = finish_round(aggregator, hparams, tally, totals, shapes, memory, key)
    return found, counted
