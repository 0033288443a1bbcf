"""One mean of the uploads of a round: each client's contribution, their sums, and the result."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import ClientResult
from fcojax.arguments import shown
from fcojax.engine.aggregator import SUM, Aggregator, Change, Codec, RoundWeights, mean_of, split
from fcojax.types import Array, Key, PyTree


def split_decoded(upload: PyTree) -> tuple[PyTree, list, Callable[[list, list], PyTree]]:
    """Split a decoded upload as ``split`` does; the payload of a ``Change`` stays a ``Change``."""
    if isinstance(upload, Change):
        payload, public, join = split(upload.value)
        return Change(payload), public, join
    return split(upload)


def decoded_upload(
    codec: Codec, encoded: PyTree, payload: list, public: list, join: Callable
) -> PyTree:
    """Return the upload that the server decodes, wrapped in ``Change`` if the codec sends changes.

    Args:
      codec: the plan's codec.
      encoded: the result of ``encode``.
      payload: the payload before it was encoded, or its shapes.
      public: the public parts.
      join: the function that ``split`` returned.
    """
    decoded = codec.decode(encoded)
    changes = isinstance(decoded, Change)
    value = decoded.value if changes else decoded
    require_same_form("decode of the codec", payload, value, "payload")
    joined = join(value, public)
    return Change(joined) if changes else joined


class Contribution(NamedTuple):
    """One client's contribution, or several along a leading axis."""

    term: PyTree
    public: list
    metrics: dict[str, Array]
    keep: Array | None


def contribution_of(
    aggregator: Aggregator, hparams: PyTree, memory: PyTree, result: ClientResult
) -> Contribution:
    """Return the contribution of one client from its result, whose upload has been decoded."""
    payload, public, _ = split_decoded(result.upload)
    term = aggregator.term(hparams, payload, memory)
    metrics = merged(result.metrics, term.metrics, "client_update of the algorithm")
    return Contribution(term.value, public, metrics, term.keep)


class Tally(NamedTuple):
    """Sums over the clients of a round so far.

    Attributes:
      collected: the terms that the aggregator has collected, and the weighted sums of public parts
        and of metrics.
      weight: total weight of the counted clients.
      participants: number of clients that worked.
      dropped: participants whose results are not finite.
      lost: participants whose finite upload did not arrive.
      left_out: participants whose upload arrived and was left out by the aggregator.
    """

    collected: tuple[PyTree, list, dict]
    weight: Array
    participants: Array
    dropped: Array
    lost: Array
    left_out: Array


def empty_tally(aggregator: Aggregator, shapes: Contribution, num_places: int, dtype: Any) -> Tally:
    """Return the tally before the first client."""
    collected = (
        aggregator.collect.start(shapes.term, num_places),
        SUM.start(shapes.public, num_places),
        SUM.start(shapes.metrics, num_places),
    )
    zero = jnp.zeros((), jnp.int32)
    return Tally(collected, jnp.zeros((), dtype), zero, zero, zero, zero)


def add_clients(
    aggregator: Aggregator,
    tally: Tally,
    clients: Contribution,
    finite: Array,
    arrives: Array | None,
    weights: Array,
    places: Array,
) -> tuple[Tally, Array]:
    """Return the tally with one more chunk, and which clients of the chunk are counted."""
    present = weights > 0
    # Each client is in one class only, so that participants = dropped + lost + left out + counted.
    # A result that is not finite is dropped, whether or not it would have arrived.
    sound = present & finite
    arrived = sound if arrives is None else sound & arrives
    counted = arrived if clients.keep is None else arrived & clients.keep.astype(bool)
    # Terms of clients that do not count may be NaN. Collectors select by the weight before they
    # multiply, since 0 * nan is nan, and one absent client would make the sum NaN.
    weights = jnp.where(counted, weights, 0)
    terms, public, metrics = tally.collected
    collected = (
        aggregator.collect.add(terms, clients.term, weights, places),
        SUM.add(public, clients.public, weights, places),
        SUM.add(metrics, clients.metrics, weights, places),
    )

    def count(which):
        # With float64 enabled the sum of booleans is int64, and the tally is the carry of a scan.
        return jnp.sum(which, dtype=jnp.int32)

    after = Tally(
        collected,
        weight=tally.weight + jnp.sum(weights),
        participants=tally.participants + count(present),
        dropped=tally.dropped + count(present & ~finite),
        lost=tally.lost + count(sound & ~arrived),
        left_out=tally.left_out + count(arrived & ~counted),
    )
    return after, counted


class TotalWeights(NamedTuple):
    """Total weights of the cohort, the population and the average cohort, and the largest weight.

    Weights of a tally are shares of ``cohort``, so that no sum of finite uploads overflows.
    """

    cohort: Array
    all: Array
    expected: Array
    largest: Array


class RoundResult(NamedTuple):
    """The result of a round, from which the server updates its state.

    Attributes:
      upload: the mean upload.
      fraction: the counted clients' share of the population's weight.
      step: whether the server updates its state.
      memory: the aggregator's memory for the next round.
      metrics: means over the counted clients.
      counts: numbers of clients, by name.
    """

    upload: PyTree
    fraction: Array
    step: Array
    memory: PyTree
    metrics: dict[str, Array]
    counts: dict[str, Array]


def finish_round(
    aggregator: Aggregator,
    hparams: PyTree,
    tally: Tally,
    totals: TotalWeights,
    shapes: ClientResult,
    memory: PyTree,
    key: Key,
    public_if_empty: list | None = None,
) -> RoundResult:
    """Return the result of a round from the sums over its clients."""
    payload, _, join = split_decoded(shapes.upload)
    terms, public, metrics = tally.collected
    arrived = tally.participants - tally.dropped - tally.lost
    weights = RoundWeights(
        share=tally.weight,
        cohort_weight=totals.cohort,
        population_weight=totals.all,
        count=arrived - tally.left_out,
        arrived=arrived,
        expected_weight=totals.expected,
        largest=totals.largest,
    )
    found = aggregator.finish(hparams, terms, weights, memory, key)
    # Only shapes: the dtypes of metrics, and whether clients can be left out.
    one = jax.eval_shape(functools.partial(contribution_of, aggregator, hparams, memory), shapes)
    payload = payload.value if isinstance(payload, Change) else payload
    # Uploads in bfloat16 are summed and averaged in float32, also by aggregators, and cast back for
    # the algorithm.
    sums = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, tree.mean_dtype(leaf.dtype)), payload)
    require_same_form("finish of the aggregator", sums, found.mean, "mean")
    require_same_form("finish of the aggregator", memory, found.memory, "memory")
    public = mean_of(public, weights)
    if public_if_empty is not None:
        public = jax.tree.map(
            lambda a, b: jnp.where(weights.count > 0, a, b.astype(a.dtype)), public, public_if_empty
        )
    upload = shapes.upload.value if isinstance(shapes.upload, Change) else shapes.upload
    counts = {"participants": tally.participants, "dropped": tally.dropped, "lost": tally.lost}
    if one.keep is not None:
        counts["left_out"] = tally.left_out
    return RoundResult(
        tree.cast_means(join(found.mean, public), upload),
        weights.fraction if found.fraction is None else found.fraction,
        found.step,
        found.memory,
        tree.cast_means(mean_of(metrics, weights), one.metrics),
        counts,
    )


def require_same_form(function: str, before: PyTree, after: PyTree, noun: str = "state") -> None:
    """Raise ``ValueError`` unless a result has the structure, shapes and dtypes of an argument."""
    # As text: one comparison then covers structure, shapes and dtypes, and the message can print
    # both.
    expected, found = (
        jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", state)
        for state in (before, after)
    )
    if jax.tree.flatten(expected) != jax.tree.flatten(found):
        raise ValueError(
            f"{function} was given a {noun} of form {shown(expected)} and returned one of form "
            f"{shown(found)}; return the same structure, shapes and dtypes."
        )


def merged(theirs: dict[str, Array], ours: dict[str, Array], function: str) -> dict[str, Array]:
    """Merge the user's measures with the engine's; raise ``ValueError`` for a name in both."""
    taken = sorted(set(theirs) & set(ours))
    if taken:
        raise ValueError(
            f"{function} returns a measure called {taken[0]}, which the engine counts itself; "
            "choose another name."
        )
    return theirs | ours
