"""One result of the uploads of a round: each client's contribution, their sums, and the result."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.engine.plan import Plan
from fcojax.engine.state import Memory
from fcojax.types import Array, Key, PyTree
from fcojax.uploads import transform
from fcojax.uploads.aggregator import SUM
from fcojax.uploads.forms import Form, require_same_form, split
from fcojax.uploads.transform import At, Received, RoundWeights, mean_of


class Contribution(NamedTuple):
    """One client's contribution to a round, or several along a leading axis.

    Attributes:
      payload: the opened upload.
      public: its public parts.
      metrics: scalars for the history.
      kept: for each name of the plan's chain whether the upload is not left out under it.
      weight: a factor of the client's weight, or ``None`` for 1.
      form: the structure of the algorithm's upload.
    """

    payload: list
    public: list
    metrics: dict[str, Array]
    kept: dict[str, Array]
    weight: Array | None
    form: Form


class Tally(NamedTuple):
    """Sums over the clients of a round so far.

    Attributes:
      collected: the terms that the aggregator has collected, and the weighted sums of public parts
        and of metrics.
      weight: total weight of the counted clients.
      participants: number of clients that worked.
      dropped: participants whose results are not finite.
      left: for each name of the chain the number of participants that are left out under it.
    """

    collected: tuple[PyTree, list, dict]
    weight: Array
    participants: Array
    dropped: Array
    left: dict[str, Array]


def term_of(plan: Plan, hparams: PyTree, memory: Memory, client: Contribution) -> PyTree:
    """Return what the aggregator collects of one client."""
    return plan.aggregator.term(hparams, client.payload, memory.aggregator)


def empty_tally(plan: Plan, term: PyTree, one: Contribution, num_places: int, dtype: Any) -> Tally:
    """Return the tally before the first client, given the shapes of one."""
    collected = (
        plan.aggregator.collect.start(term, num_places),
        SUM.start(one.public, num_places),
        SUM.start(one.metrics, num_places),
    )
    zero = jnp.zeros((), jnp.int32)
    return Tally(collected, jnp.zeros((), dtype), zero, zero, dict.fromkeys(one.kept, zero))


def add_clients(
    plan: Plan,
    tally: Tally,
    terms: PyTree,
    clients: Contribution,
    finite: Array,
    weights: Array,
    places: Array,
) -> tuple[Tally, Array]:
    """Return the tally with one more chunk, and which clients of the chunk are counted."""

    def count(which):
        # With float64 enabled the sum of booleans is int64, and the tally is the carry of a scan.
        return jnp.sum(which, dtype=jnp.int32)

    present = weights > 0
    # Each client is in one class only, so that participants = dropped + left + counted. A result
    # that is not finite is dropped, whether or not it would have arrived.
    counted, left = present & finite, {}
    for name in plan.uploads.names:
        left[name] = tally.left[name] + count(counted & ~clients.kept[name])
        counted = counted & clients.kept[name]
    # Terms of clients that do not count may be NaN. Collectors select by the weight before they
    # multiply, since 0 * nan is nan, and one absent client would make the sum NaN.
    weights = jnp.where(counted, weights, 0)
    if clients.weight is not None:
        factor = jnp.where(counted, clients.weight, 1).astype(weights.dtype)
        weights = weights * factor
    own, public, metrics = tally.collected
    collected = (
        plan.aggregator.collect.add(own, terms, weights, places),
        SUM.add(public, clients.public, weights, places),
        SUM.add(metrics, clients.metrics, weights, places),
    )
    after = Tally(
        collected,
        weight=tally.weight + jnp.sum(weights),
        participants=tally.participants + count(present),
        dropped=tally.dropped + count(present & ~finite),
        left=left,
    )
    return after, counted


class RoundResult(NamedTuple):
    """The result of a round, from which the server updates its state.

    Attributes:
      upload: the mean upload.
      fraction: the counted clients' share of the population's weight.
      step: whether the server updates its state.
      memory: what the server keeps for the next round.
      metrics: means over the counted clients.
      counts: numbers of clients, by name.
    """

    upload: PyTree
    fraction: Array
    step: Array
    memory: Memory
    metrics: dict[str, Array]
    counts: dict[str, Array]


def finish_round(
    plan: Plan,
    at: At,
    tally: Tally,
    totals: RoundWeights,
    one: Contribution,
    memory: Memory,
    key: Key,
    public_if_empty: list | None = None,
) -> RoundResult:
    """Return the result of a round from the sums over its clients.

    ``totals`` are the weights before any client is counted, ``key`` is the aggregator's, and of
    ``one`` only shapes are read. If no client counts, the public parts are ``public_if_empty``, or
    zeros.
    """
    collected, public, metrics = tally.collected
    left = tally.left
    count = tally.participants - tally.dropped - sum(left.values())
    weights = totals._replace(share=tally.weight, count=count)
    found, kept = collected, memory.aggregator
    if not plan.uploads.needs_sum:
        found, kept = plan.aggregator.finish(at.hparams, collected, weights, kept, key)
    # Uploads in bfloat16 are summed and averaged in float32, also by aggregators, and cast back for
    # the algorithm.
    sums = SUM.start(one.payload, 0)
    require_same_form("finish of the aggregator", sums, found, "mean")
    require_same_form("finish of the aggregator", memory.aggregator, kept, "memory")
    public = mean_of(public, weights)
    if public_if_empty is not None:
        public = jax.tree.map(
            lambda a, b: jnp.where(weights.count > 0, a, b.astype(a.dtype)), public, public_if_empty
        )
    given = Received(found, public, weights.fraction, weights.count > 0)
    last, transforms = transform.received(plan.uploads, at, given, weights, memory.transforms)
    # A mean of another shape would broadcast in the server's step, or lose its last parts.
    before, after = (
        jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), float), parts)
        for parts in (split(one.form.shapes())[:2], (last.mean, last.public))
    )
    require_same_form("the plan's chain", before, after, "payload")
    nobody = jnp.zeros((), jnp.int32)
    return RoundResult(
        tree.cast_means(one.form.join(last.mean, last.public), one.form.shapes()),
        last.fraction,
        last.step,
        memory._replace(transforms=transforms, aggregator=kept),
        tree.cast_means(mean_of(metrics, weights), one.metrics),
        {"participants": tally.participants, "dropped": tally.dropped, "lost": nobody} | left,
    )
