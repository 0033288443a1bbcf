"""What the server does with all uploads of a round, and how it sends its message to clients."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Known
from fcojax.types import Array, Key, ManyArrays, PyTree
from fcojax.uploads.transform import RoundWeights, mean_of


class Collector(NamedTuple):
    """How the terms of a round are accumulated, chunk by chunk; results of devices are summed.

    Attributes:
      start: ``(shapes, num_places) -> collected``: the initial value, given the shapes of one
        client's term and the number of places in a cohort.
      add: ``(collected, terms, weights, places) -> collected``: adds one chunk; ``terms`` has a
        leading axis of clients. A client that does not count has weight 0, and its term may be NaN.
    """

    start: Callable[[PyTree, int], PyTree]
    add: Callable[[PyTree, PyTree, Array, Array], PyTree]


def _no_sum(shapes: PyTree, num_places: int) -> PyTree:
    del num_places
    # At least float32: a sum of ones in bfloat16 stops growing at 256.
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, tree.mean_dtype(leaf.dtype)), shapes)


def _add_to_sum(total: PyTree, terms: PyTree, weights: Array, places: Array) -> PyTree:
    del places

    def accumulate(sum_, leaf):
        counted = _column(weights, leaf) > 0
        masked = jnp.where(counted, leaf.astype(sum_.dtype), 0)  # zero times NaN is NaN
        return sum_ + jnp.sum(_column(weights.astype(sum_.dtype), leaf) * masked, axis=0)

    return jax.tree.map(accumulate, total, terms)


def _column(weights: Array, like: Array) -> Array:
    return weights.reshape(-1, *(1,) * (like.ndim - 1))


SUM = Collector(_no_sum, _add_to_sum)


def weighted_mean(
    hparams: Any, total: PyTree, weights: RoundWeights, memory: PyTree, key: Key
) -> tuple[PyTree, PyTree]:
    """Return the weighted mean over the counted clients, from their sum."""
    del hparams, key
    return mean_of(total, weights), memory


class Aggregator(NamedTuple):
    """How the server combines the uploads of a round; its numbers are fields of ``hparams``.

    Attributes:
      init: ``(payload) -> memory``: the initial memory, given an opened payload of zeros.
      term: ``(hparams, payload, memory) -> term``: the arrays of one client that are collected.
      collect: ``SUM`` of the terms, each times its client's share of the cohort's weight; or
        ``STACK``, which keeps all terms of a round in memory, for rules that need them together.
      finish: ``(hparams, collected, weights, memory, key) -> (mean, memory)``, with the
        ``RoundWeights``. The points of a sweep share the key.
      attack: the attack that it simulates, as of ``attacks.seeing_all``.

    Example:
      >>> def signs(hparams, payload, memory):
      ...     return jax.tree.map(jnp.sign, payload)
      >>> mean_of_signs = Aggregator(term=signs)
    """

    init: Callable[[ManyArrays], PyTree] = lambda payload: ()
    term: Callable[[Any, Any, PyTree], PyTree] = lambda hparams, payload, memory: payload
    collect: Collector = SUM
    finish: Callable[[Any, PyTree, RoundWeights, PyTree, Key], tuple[PyTree, PyTree]] = (
        weighted_mean
    )
    attack: Any = None

    example = "robust.median()"


MEAN = Aggregator()


class Broadcast(NamedTuple):
    """How the server sends its message to all clients, present or not.

    Attributes:
      name: the call that makes it.
      corrected: ``(hparams, estimate, message, key) -> (estimate, sent)``: the clients' new
        estimate of a message, and the arrays that are sent for it.
    """

    name: str
    corrected: Callable[[Any, PyTree, PyTree, Key], tuple[PyTree, PyTree]]

    example = "uploads.ef21p(uploads.top_k(0.1))"


class Estimate(NamedTuple):
    """The clients' estimate of the message, and what was sent for it last."""

    message: PyTree
    sent: PyTree


def first_estimate(broadcast: Broadcast | None, message: PyTree) -> Estimate | tuple:
    """Return the estimate before the first round: clients know the first message."""
    if broadcast is None:
        return ()

    def is_known(part):
        return isinstance(part, Known)

    if any(map(is_known, jax.tree.leaves(message, is_leaf=is_known))):
        raise ValueError(
            "the algorithm's message has a part that clients know without receiving it, as "
            "partial_sharing's, and a compressed broadcast would change it; pass broadcast=None."
        )
    _, sent = broadcast.corrected(None, message, message, jax.random.key(0))
    return Estimate(message, sent)


def next_estimate(
    broadcast: Broadcast,
    hparams: PyTree,
    estimate: Estimate,
    message: PyTree,
    key: Key,
    taken: Array,
) -> Estimate:
    """Return the estimate after a round; it stays if the server took no step."""
    after = Estimate(*broadcast.corrected(hparams, estimate.message, message, key))
    return tree.where(taken & tree.all_finite(after), after, estimate)
