"""The loop over the clients of a cohort, chunk by chunk, into one weighted sum.

Only one chunk of clients is in memory at a time. A client is *counted* if its upload is finite and
no transform leaves it out; only then does it enter the sums and keep its new state.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.local import Local
from fcojax.algorithms.work import Work
from fcojax.engine import padding
from fcojax.engine.members import Slots
from fcojax.engine.nonfinite import guarded
from fcojax.engine.plan import Plan
from fcojax.engine.randomness import (
    BATCHES,
    CLIENT,
    ENCODE,
    SHARED,
    purpose_key,
    sizes_of_all,
)
from fcojax.engine.state import Memory
from fcojax.engine.tally import Contribution, Tally, add_clients, empty_tally, term_of
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, PyTree
from fcojax.uploads import transform
from fcojax.uploads.aggregator import MEAN
from fcojax.uploads.forms import merged, require_same_form, split, zeros
from fcojax.uploads.transform import At
from fcojax.xla.loops import batch_max, small_slice
from fcojax.xla.rules import rules


class RoundContext(NamedTuple):
    """The values that are constant while the clients of one round work.

    Attributes:
      algorithm: the algorithm of the run.
      plan: how rounds are run, with every size chosen.
      hparams: the hyperparameters of this round.
      data: the clients of this device.
      key: PRNG key of the run.
      index: index of the round, from 0.
      noise_key: the key of noise, which differs between the points of a sweep.
      memory: what the server keeps, beside the algorithm's state.
    """

    algorithm: Algorithm
    plan: Plan
    hparams: PyTree
    data: ClientData
    key: Key
    index: Array
    noise_key: Key
    memory: Memory = Memory()


class Rows(NamedTuple):
    """Arrays with one row per client: the algorithm's state, and one for each transform."""

    states: PyTree
    residuals: PyTree


# (row, rows before, max_size) -> (contribution, rows after, whether both are finite)
OneClient = Callable[..., tuple[Contribution, Rows, Array]]


def run_clients(
    context: RoundContext, one_client: OneClient, one: Contribution, slots: Slots, rows: Rows
) -> tuple[Tally, Rows]:
    """Run the clients in these slots.

    Args:
      context: the constants of this round.
      one_client: computes one client, from ``client_function``.
      one: shapes of one client's contribution.
      slots: the members; their weights are shares that add up to at most one, so that no sum of
        finite uploads overflows.
      rows: all clients' states.

    Returns:
      The sums, and all rows, in which counted clients have their new states.
    """
    num_slots = slots.row_indices.shape[0]
    num_chunks = -(-num_slots // (context.plan.client_chunk_size or num_slots))
    # Evenly: ten members in chunks of at most eight run as five and five; eight and two would
    # compute six empty slots.
    per_chunk = -(-num_slots // num_chunks)
    slots = _padded(slots, num_chunks * per_chunk - num_slots)
    # A single chunk is empty only if the whole cohort is. On an accelerator the host would wait for
    # the branch's condition in every round.
    if num_chunks == 1 and rules().masks:
        slots = slots._replace(can_be_empty=False)
    # Chunks of clients of similar size save rows and steps. A single chunk pads to the largest
    # client in any order, and a chunk of one client pads to its own size.
    if padding.sizes_matter(context.plan.work, context.data) and 1 < per_chunk < num_slots:
        sizes = padding.num_examples_of(context.data, slots.row_indices, slots.weights)
        order = padding.order_by_size(sizes)
        slots = slots._replace(
            row_indices=slots.row_indices[order],
            places=slots.places[order],
            weights=slots.weights[order],
        )

    plan = context.plan
    collected = functools.partial(term_of, plan, context.hparams, context.memory)

    def one_chunk(carry, chunk):
        tally, all_rows = carry
        members, places, weights = chunk
        before = jax.tree.map(lambda leaf: leaf[members], all_rows)
        # The clients of a chunk run side by side: on a CPU as many as a core's cache holds, on a
        # GPU as many as memory holds. On a CPU W2 takes 27 ms a round one by one, 37 by four, 116
        # with all 59 at once.
        clients, states, finite = _chunk_results(
            context, one_client, slots.can_be_empty, members, weights, before
        )
        terms = jax.vmap(collected)(clients)
        tally, counted = add_clients(plan, tally, terms, clients, finite, weights, places)
        # Writes beyond the last row are dropped: clients that are not counted keep their state.
        target = jnp.where(counted, members, context.data.clients_per_shard)
        after = jax.tree.map(
            lambda leaf, new: leaf.at[target].set(new, mode="drop"), all_rows, states
        )
        return (tally, after), None

    # Places of the whole draw, not the slots of this device: a `STACK` writes each client at its
    # place, so that the stacks of devices have disjoint rows and their sum is the cohort.
    num_places = context.plan.cohort.size(context.data.num_clients)
    term = jax.eval_shape(collected, one)
    start = (empty_tally(plan, term, one, num_places, slots.weights.dtype), rows)
    chunks = jax.tree.map(
        lambda column: column.reshape(num_chunks, per_chunk),
        (slots.row_indices, slots.places, slots.weights),
    )
    if num_chunks == 1:
        return one_chunk(start, jax.tree.map(lambda leaf: leaf[0], chunks))[0]
    return jax.lax.scan(one_chunk, start, chunks)[0]


def _padded(slots: Slots, num_empty: int) -> Slots:
    """Append empty slots, so that all chunks have the same length."""
    return slots._replace(
        # Row 0 with weight zero: its result is computed and discarded, and its state is not
        # written.
        row_indices=jnp.pad(slots.row_indices, (0, num_empty)),
        places=jnp.pad(slots.places, (0, num_empty)),
        weights=jnp.pad(slots.weights, (0, num_empty)),
        can_be_empty=slots.can_be_empty or num_empty > 0,
    )


def client_function(
    context: RoundContext, message: PyTree, client_of: Callable[[Array], Array]
) -> OneClient:
    """Return the function that computes one client's work and what its upload becomes."""
    algorithm, plan, data = context.algorithm, context.plan, context.data
    # One stream for each purpose: a transform that draws more numbers leaves a client's own draws
    # and its minibatches unchanged, so that runs with and without it are comparable.
    client_key = purpose_key(context.key, CLIENT, context.index)
    encode_key = purpose_key(context.key, ENCODE, context.index)
    # Not folded by client: all clients and the server draw the same coin.
    shared_key = purpose_key(context.key, SHARED, context.index)
    # Here, because a collective inside of a branch would wait for devices that do not take it.
    sizes = sizes_of_all(data) if plan.uploads.transforms else None

    def client_and_chain(hparams, message, before: Rows, memory: Memory, local, key, *place):
        result = algorithm.client_update(hparams, message, before.states, local, key)
        # Without this check a scan fails over its carry, in a message that does not name
        # client_update.
        require_same_form("client_update", before.states, result.state)
        at = At(hparams, *place, by_rule=plan.aggregator != MEAN)
        inclusion = functools.partial(_inclusion, plan, data.num_clients, sizes, at.client)
        given = result.upload, before.residuals, memory.transforms
        contribution, residuals = through_chain(plan, at._replace(inclusion=inclusion), *given)
        metrics = merged(result.metrics, contribution.metrics, "client_update of the algorithm")
        return contribution._replace(metrics=metrics), Rows(result.state, residuals)

    # Uploads and states decide whether a client counts; a metric that is NaN only shows in the
    # history. The chain is inside the guard, because encoding can overflow too.
    compute = guarded(
        client_and_chain, lambda result: (result[0].payload, result[0].public, result[1])
    )

    @functools.partial(jax.jit, static_argnames="max_size")  # traced once for all uses
    def one_client(row, before: Rows, max_size=data.max_size) -> tuple[Contribution, Rows, Array]:
        # Keys are folded by the index in the population, so that a client draws the same on a mesh,
        # from disk, and in any chunk.
        client = client_of(row)
        local = local_handle(data, plan.work, context.key, context.index, client, row, max_size)
        key = jax.random.fold_in(client_key, client)
        own = jax.random.fold_in(encode_key, client)
        given = context.hparams, message, before, context.memory, local, key
        (contribution, states), finite = compute(*given, context.index, client, own, shared_key)
        return contribution, states, finite

    return one_client


def _inclusion(plan: Plan, num_clients: int, sizes: Array | None, client: Array) -> Array:
    """Return how probably a client is drawn and its upload arrives."""
    varying = [one for one in plan.uploads.transforms if one.facts.by_round]
    if len(varying) + plan.cohort.by_round > 1:
        raise ValueError(
            "who is late and who is drawn both depend on the round, so the probability that both "
            'hold is not their product; pass inverse_probability("estimated"), or one number of '
            "seconds for each client."
        )
    share = plan.cohort.inclusion(client, num_clients, sizes)
    for one in plan.uploads.transforms:
        if one.facts.arrives is not None:
            share = share * one.facts.arrives(client)
    return jnp.asarray(share)


def through_chain(
    plan: Plan, at: At, upload: PyTree, states: tuple, servers: tuple
) -> tuple[Contribution, tuple]:
    """Return a client's contribution from its upload, and what its transforms keep.

    Args:
      plan: its chain is applied.
      at: where the client is, with its key and the function ``inclusion``.
      upload: the algorithm's upload.
      states: what the client's transforms keep.
      servers: what the server's transforms keep.
    """
    payload, public, form = split(upload)
    sent, kept = transform.send(plan.uploads, at, payload, states)
    there = at._replace(key=None)
    decoded = transform.decode(plan.uploads, there, sent.wire, payload, states)
    given = decoded, states, servers, kept, sent.metrics
    found, kept = transform.opened(plan.uploads, there, *given)
    contribution = Contribution(found.payload, public, found.metrics, kept, found.weight, form)
    return contribution, sent.client_state


def local_handle(
    data: ClientData,
    work: Work,
    key: Key,
    index: Array,
    client: Array,
    row: Array,
    max_size: int | None = None,
) -> Local:
    """Return the handle through which a client reads its own examples.

    Args:
      data: the clients of this device.
      work: how much a client does.
      key: PRNG key of the run.
      index: index of the round.
      client: index of the client in the population.
      row: index of the client in this device's arrays.
      max_size: rows to pad to; the largest client's by default.
    """
    first, end = small_slice(data.offsets, row, 2)
    return Local(
        rows=data.examples,
        client=jnp.asarray(client),
        offset=first,
        num_examples=end - first,
        key=jax.random.fold_in(purpose_key(key, BATCHES, index), client),
        work=work,
        min_size=data.min_size,
        max_size=max_size or data.max_size,
        products=data.products,
        round=None if work.by_round is None else jnp.asarray(index),
    )


def _chunk_results(
    context: RoundContext,
    one_client: OneClient,
    can_be_empty: bool,
    rows: Array,
    weights: Array,
    before: Rows,
) -> tuple[Contribution, Rows, Array]:
    """Return one chunk's results, padded to the smallest bound that holds it; zeros if empty."""
    bounds = padding.bounds_for(context.plan.work, context.data)

    def padded_results(max_size, rows, before):
        compute = functools.partial(one_client, max_size=max_size)
        # An axis of one client would only slow compilation down.
        if rows.shape[0] > 1:
            return jax.vmap(compute)(rows, before)
        result = compute(rows[0], jax.tree.map(lambda leaf: leaf[0], before))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], result)

    def results(rows, before):
        if len(bounds) == 1:
            return padded_results(context.data.max_size, rows, before)
        sizes = padding.num_examples_of(context.data, rows, weights)
        branches = [functools.partial(padded_results, bound) for bound in bounds]
        # One of these branches runs: a chunk of small clients is not padded to the largest client.
        return jax.lax.switch(padding.branch(bounds, sizes), branches, rows, before)

    if not can_be_empty:
        return results(rows, before)
    # Traced once, for its shapes and for the branch.
    results = jax.jit(results)
    shapes = jax.eval_shape(results, rows, before)
    empty = zeros(shapes)
    # One condition for all runs of a sweep. With one for each seed XLA ran both sides and copied
    # all examples for each: 37 ms a round in place of 1, for 2 x 3 runs over 4,000 clients.
    needed = batch_max(jnp.any(weights > 0))
    return jax.lax.cond(needed, results, lambda rows, before: empty, rows, before)
