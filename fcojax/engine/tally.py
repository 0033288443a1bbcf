"""What becomes of the uploads of a round: a client's half, the sums, and the server's half.

A simulation runs both halves in one program; over a network, in ``remote``, they are two programs.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, NewRow
from fcojax.engine.members import AGGREGATE, SERVER, SHARED, local_handle, purpose_key
from fcojax.engine.nonfinite import guarded
from fcojax.engine.plan import Plan
from fcojax.engine.state import Memory
from fcojax.problems.clients import Clients
from fcojax.types import Array, Key, PyTree
from fcojax.uploads.contract import (
    MEAN,
    SUM,
    At,
    Received,
    RoundWeights,
    mean_of,
    require_same_form,
    split,
)


class RoundContext(NamedTuple):
    """The values that are constant while the clients of one round work.

    ``hparams`` are those of this round, ``data`` the clients of this device, ``None`` over a
    network; ``noise_key`` differs between the points of a sweep, where ``key`` is the run's.
    ``drawn`` are the cohort, and the minibatches if they were drawn before the round.
    """

    algorithm: Algorithm
    plan: Plan
    hparams: PyTree
    data: Any
    key: Key
    index: Array
    noise_key: Key
    memory: Memory = Memory()
    drawn: Any = None


class Rows(NamedTuple):
    """What one client keeps, or with a leading axis all: the algorithm's state, the transforms'."""

    states: PyTree
    residuals: PyTree


class Upload(NamedTuple):
    """One client's upload on its way to the sums, or several along a leading axis.

    Attributes:
      own: what its transforms send, over a network the arrays of it that depend on the upload, as
        the server knows the others, such as keys; then the decoded payload; then the opened one.
      public: its public parts.
      metrics: scalars for the history.
      kept: for each name of the plan's chain whether the upload is not left out under it.
      weight: a factor of the client's weight, or ``None`` for 1.
      form: the structure of the algorithm's upload, once it is opened.
    """

    own: Any
    public: list
    metrics: dict[str, Array]
    kept: dict[str, Array]
    weight: Array | None = None
    form: Any = None


def through_chain(
    plan: Plan, at: At, result: ClientResult, residuals: tuple, memory: Memory
) -> tuple[Upload, Rows]:
    """Return a client's opened upload, and what it keeps: both halves."""
    payload, public, form = split(result.upload)
    given = payload, residuals, memory.transforms, result.metrics
    own, weight, metrics, kept, after = plan.uploads.through(at, *given)
    return Upload(own, public, metrics, kept, weight, form), Rows(result.state, after)


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


def empty_tally(context: RoundContext, one: Upload, num_places: int, dtype: Any) -> Tally:
    """Return the tally before the first client, given the shapes of one."""
    term = jax.eval_shape(functools.partial(_term_of, context), one)
    collected = (
        context.plan.aggregator.collect.start(term, num_places),
        SUM.start(one.public, num_places),
        SUM.start(one.metrics, num_places),
    )
    zero = jnp.zeros((), jnp.int32)
    return Tally(collected, jnp.zeros((), dtype), zero, zero, dict.fromkeys(one.kept, zero))


def _term_of(context: RoundContext, client: Upload) -> PyTree:
    """Return what the aggregator collects of one client."""
    term = context.plan.aggregator.term
    return term(context.hparams, client.own, context.memory.aggregator)


def add_clients(
    context: RoundContext,
    tally: Tally,
    clients: Upload,
    finite: Array,
    weights: Array,
    places: Array,
) -> tuple[Tally, Array]:
    """Return the tally with one more chunk, and which clients of the chunk are counted."""

    def count(which):
        # With float64 enabled the sum of booleans is int64, and the tally is the carry of a scan.
        return jnp.sum(which, dtype=jnp.int32)

    plan, present = context.plan, weights > 0
    terms = jax.vmap(functools.partial(_term_of, context))(clients)
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


def server_half(
    context: RoundContext,
    server: PyTree,
    tally: Tally,
    totals: RoundWeights,
    one: Upload,
    public_if_empty: list | None,
) -> tuple[PyTree, Memory, Array, dict[str, Array], dict[str, Array]]:
    """Return the server's new state and memory, whether it took its step, metrics and counts.

    ``totals`` are the weights before any client is counted, and of ``one`` only shapes are read. If
    no client counts, the public parts are ``public_if_empty``, or zeros. A step whose result is not
    finite is refused.
    """
    plan, memory, (collected, public, metrics) = context.plan, context.memory, tally.collected
    at = At(context.hparams, context.index)
    if plan.uploads.transforms:
        at = at._replace(
            round_key=purpose_key(context.key, SHARED, context.index),
            private_key=purpose_key(context.noise_key, AGGREGATE, context.index),
            by_rule=plan.aggregator != MEAN,
        )
    count = tally.participants - tally.dropped - sum(tally.left.values())
    weights = totals._replace(share=tally.weight, count=count)
    found, kept = collected, memory.aggregator
    if not plan.uploads.needs_sum:
        key = purpose_key(context.key, AGGREGATE, context.index)
        found, kept = plan.aggregator.finish(at.hparams, collected, weights, kept, key)
    # Uploads in bfloat16 are summed and averaged in float32, also by aggregators, and cast back for
    # the algorithm.
    sums = SUM.start(one.own, 0)
    require_same_form("finish of the aggregator", sums, found, "mean")
    require_same_form("finish of the aggregator", memory.aggregator, kept, "memory")
    public = mean_of(public, weights)
    if public_if_empty is not None:
        public = jax.tree.map(
            lambda a, b: jnp.where(weights.count > 0, a, b.astype(a.dtype)), public, public_if_empty
        )
    given = Received(found, public, weights.fraction, weights.count > 0)
    last, transforms = plan.uploads.received(at, given, weights, memory.transforms)
    # A mean of another shape would broadcast in the server's step, or lose its last parts.
    before, after = (
        jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), float), parts)
        for parts in (split(one.form.shapes())[:2], (last.mean, last.public))
    )
    require_same_form("the plan's chain", before, after, "payload")
    upload = tree.cast_like(one.form.join(last.mean, last.public), one.form.shapes())
    key = purpose_key(context.key, SERVER, context.index)
    # Guarded, and not only masked below: in reverse mode a masked step that overflows has a
    # derivative of 0 * inf, which is NaN.
    step = guarded(context.algorithm.server_update, lambda server: server)
    stepped, finite = step(context.hparams, server, upload, last.fraction, key)
    # Without a counted client the mean is zero, and a server with momentum would still move.
    taken = last.step & finite
    counts = {"participants": tally.participants, "dropped": tally.dropped}
    counts |= {"lost": jnp.zeros((), jnp.int32)} | tally.left
    counts["refused"] = jnp.where(last.step & ~finite, 1, 0).astype(jnp.int32)
    memory = memory._replace(transforms=transforms, aggregator=kept)
    metrics = tree.cast_like(mean_of(metrics, weights), one.metrics)
    return _where_taken(taken, stepped, server), memory, taken, metrics, counts


def _where_taken(taken: Array, stepped: PyTree, server: PyTree) -> PyTree:
    """Return the new state if the step is taken, else the old one; with new rows in both."""

    def is_row(part):
        return isinstance(part, NewRow)

    def chosen(new, old):
        if not is_row(new):
            return jnp.where(taken, new, old)
        return jax.lax.dynamic_update_index_in_dim(old, new.value, new.index, 0)

    if not any(map(is_row, jax.tree.leaves(stepped, is_leaf=is_row))):
        require_same_form("server_update", server, stepped)
    after = jax.tree.map(chosen, stepped, server, is_leaf=is_row)
    require_same_form("server_update", server, after)
    return after


def one_update(
    algorithm: Algorithm,
    plan: Plan,
    hparams: PyTree,
    server: PyTree,
    client: PyTree,
    data: Clients,
    index: Any = None,
) -> ClientResult:
    """Return the result of a client, by default the first, in the first round.

    Callers use only its shapes and what it depends on.
    """
    key, zero = jax.random.key(0), jnp.zeros((), jnp.int32)
    index = zero if index is None else index
    local = local_handle(data.local(), plan.work, key, zero, index, index)
    message = algorithm.broadcast(hparams, server)
    return algorithm.client_update(hparams, message, client, local, key)


def first_uploads(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, states: tuple, data: Clients
) -> tuple[tuple, Memory]:
    """Return what a client's transforms and the server keep at first.

    Raise ``ValueError`` if a transform does not fit the algorithm. ``states`` are the first ones of
    the server and of a client.
    """
    server, client = states
    estimate = ()
    if plan.broadcast is not None:
        estimate = plan.broadcast.first(algorithm.broadcast(hparams, server))
    # The plain mean keeps nothing, so no client needs to be traced.
    if not plan.uploads.transforms and plan.aggregator == MEAN:
        return (), Memory(broadcast=estimate)
    update = functools.partial(one_update, algorithm, plan)
    result = jax.eval_shape(update, hparams, server, client, data)
    # They start from zeros, because nothing has been sent yet.
    payload = tree.zeros_like(split(result.upload)[0])
    residuals, servers = plan.uploads.first_states(payload)
    memory = Memory(servers, broadcast=estimate)
    key, index, by_rule = jax.random.key(0), jnp.zeros((), jnp.int32), plan.aggregator != MEAN
    at = At(hparams, index, index, key, key, by_rule=by_rule, inclusion=lambda: jnp.ones(()))

    through = functools.partial(through_chain, plan, at)
    # A k beyond the number of entries is refused here.
    one, _ = jax.eval_shape(through, result, residuals, memory)
    plan.uploads.require_fit(algorithm, plan, one_update, at, result, states, data)
    return residuals, memory._replace(aggregator=plan.aggregator.init(tree.zeros_like(one.own)))
