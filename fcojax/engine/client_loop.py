"""The loop over the clients of a cohort, chunk by chunk, into one weighted sum.

Only one chunk of clients is in memory at a time. A client is *counted* if its upload arrives, is
finite and is not left out by the aggregator; only then does it enter the sums and keep its new
state.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm, ClientResult
from fcojax.algorithms.local import Local
from fcojax.algorithms.work import Work
from fcojax.engine import padding
from fcojax.engine.aggregation import (
    Tally,
    add_clients,
    contribution_of,
    decoded_upload,
    empty_tally,
    require_same_form,
)
from fcojax.engine.aggregator import Codec, split
from fcojax.engine.nonfinite import guarded
from fcojax.engine.participation.base import Draw
from fcojax.engine.participation.counting import codec_of, frequency
from fcojax.engine.plan import Plan
from fcojax.engine.randomness import (
    BATCHES,
    CLIENT,
    ENCODE,
    SHARED,
    purpose_key,
    sizes_of_all,
)
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, PyTree
from fcojax.xla.loops import batch_max
from fcojax.xla.rules import rules
from fcojax.xla.slicing import small_slice


class RoundContext(NamedTuple):
    """The values that are constant while the clients of one round work.

    Attributes:
      algorithm: the algorithm of the run.
      plan: how rounds are run, with every size chosen.
      hparams: the hyperparameters of this round.
      data: the clients of this device.
      key: PRNG key of the run.
      index: index of the round, from 0.
      noise_key: the aggregator's key; with noise it differs between the points of a sweep.
      memory: the aggregator's memory.
    """

    algorithm: Algorithm
    plan: Plan
    hparams: PyTree
    data: ClientData
    key: Key
    index: Array
    noise_key: Key
    memory: PyTree = ()


class Slots(NamedTuple):
    """The members of the cohort that this device computes.

    Attributes:
      row_indices: row of each member in this device's arrays.
      places: place of each member in the draw.
      weights: weight p_m of each member, 0 if it is absent.
      arrives: whether each upload reaches the server, or ``None`` if all do.
      first_client: index of the client in this device's first row.
      can_be_empty: whether skipping chunks of absent members is worth a branch.
    """

    row_indices: Array
    places: Array
    weights: Array
    arrives: Array | None
    first_client: Array | int
    can_be_empty: bool


class Rows(NamedTuple):
    """Arrays with one row per client: the algorithm's state and the codec's residual."""

    states: PyTree
    residuals: PyTree


OneClient = Callable[..., tuple[ClientResult, Array]]  # (row, rows before, max_size)


def slots_of(context: RoundContext, cohort: Draw, all_rows: Rows) -> Slots:
    """Return the members of the cohort that this device computes, with their weights."""
    data, correct = context.data, context.plan.correct
    if data.num_shards > 1:
        cohort, places, first_client = _on_this_shard(data, cohort)
    else:
        places, first_client = jnp.arange(cohort.present.shape[0], dtype=jnp.int32), 0
    members, (_, present, arrives) = cohort.indices, cohort
    if data.held is None:
        rows = members - first_client
    else:
        # A block of a population on disk holds some clients, in ascending order.
        rows = jnp.searchsorted(data.held.members, members).astype(members.dtype)
    # Absent places, and other devices' members, have no row here: they compute some row of this
    # device, with weight zero.
    rows = jnp.clip(rows, 0, data.clients_per_shard - 1)
    # In place of `data.weights[rows]`: on a CPU XLA runs a gather from a long array on all cores, 4
    # microseconds for ten numbers out of a million.
    each = jax.vmap(lambda row: small_slice(data.weights, row, 1)[0])(rows)
    weights = jnp.where(present, each, 0)
    if correct is not None:
        # Horvitz and Thompson's estimator: weights p_m / q_m over the sum of all p_m.
        if correct == "known":
            share = context.plan.cohort.inclusion(members, data.num_clients, sizes_of_all(data))
        else:
            share = frequency(all_rows.residuals, rows, context.index)
        # Clients that are never counted have q_m = 0. They are in absent places, or always too late
        # for a deadline; an infinite weight would make all others zero.
        share = jnp.asarray(share, weights.dtype)
        weights = weights / jnp.where(present & (share > 0), share, 1)
    # On a mesh even a full cohort leaves chunks empty: each device has places for all members.
    can_be_empty = context.plan.cohort.can_be_absent or data.num_shards > 1
    return Slots(rows, places, weights, arrives, first_client, can_be_empty)


def _on_this_shard(data: ClientData, cohort: Draw) -> tuple[Draw, Array, Array]:
    """Return the draw with this device's own members first, their places, and its first client."""
    first_client = jax.lax.axis_index("clients") * data.clients_per_shard
    if cohort.members is None:
        # Everyone: this device's own rows in their order, with no gather. Outside of `shard_map`,
        # over a sharded axis of clients, `x[members]` would make XLA all-reduce the examples of the
        # cohort in every round.
        places = first_client + jnp.arange(data.clients_per_shard, dtype=jnp.int32)
        own = True
    else:
        first, after = first_client, first_client + data.clients_per_shard
        own = (cohort.members >= first) & (cohort.members < after)
        # The chunks after a device's own members are empty and skipped.
        # A stable sort: own members keep the order of the draw.
        places = jnp.argsort(~own).astype(jnp.int32)
        own = own[places]

    def here(part):
        # Clients that only pad the population to a multiple of the devices have places beyond the
        # draw: absent.
        return part.at[places].get(mode="fill", fill_value=False)

    arrives = None if cohort.arrives is None else here(cohort.arrives)
    members = places if cohort.members is None else cohort.members[places]
    return Draw(members, here(cohort.present) & own, arrives), places, first_client


def run_clients(
    context: RoundContext, one_client: OneClient, shapes: ClientResult, slots: Slots, rows: Rows
) -> tuple[Tally, Rows]:
    """Run the clients in these slots.

    Args:
      context: the constants of this round.
      one_client: computes one client, from ``client_function``.
      shapes: shapes of one client's result.
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
            arrives=None if slots.arrives is None else slots.arrives[order],
        )

    aggregator = context.plan.aggregator
    collected = functools.partial(contribution_of, aggregator, context.hparams, context.memory)

    def one_chunk(carry, chunk):
        tally, all_rows = carry
        members, places, weights, arrives = chunk
        before = jax.tree.map(lambda leaf: leaf[members], all_rows)
        # The clients of a chunk run side by side: on a CPU as many as a core's cache holds, on a
        # GPU as many as memory holds. On a CPU W2 takes 27 ms a round one by one, 37 by four, 116
        # with all 59 at once.
        result, finite = _chunk_results(
            context, one_client, slots.can_be_empty, members, weights, before
        )
        clients = jax.vmap(collected)(result)
        tally, counted = add_clients(aggregator, tally, clients, finite, arrives, weights, places)
        # Writes beyond the last row are dropped: clients that are not counted keep their state.
        target = jnp.where(counted, members, context.data.clients_per_shard)
        after = jax.tree.map(
            lambda leaf, new: leaf.at[target].set(new, mode="drop"), all_rows, result.state
        )
        return (tally, after), None

    # Places of the whole draw, not the slots of this device: a `STACK` writes each client at its
    # place, so that the stacks of devices have disjoint rows and their sum is the cohort.
    num_places = context.plan.cohort.size(context.data.num_clients)
    one = jax.eval_shape(collected, shapes)
    start = (empty_tally(aggregator, one, num_places, slots.weights.dtype), rows)
    chunks = jax.tree.map(
        lambda column: column.reshape(num_chunks, per_chunk),
        (slots.row_indices, slots.places, slots.weights, slots.arrives),
    )
    if num_chunks == 1:
        return one_chunk(start, jax.tree.map(lambda leaf: leaf[0], chunks))[0]
    return jax.lax.scan(one_chunk, start, chunks)[0]


def _padded(slots: Slots, num_empty: int) -> Slots:
    """Append empty slots, so that all chunks have the same length."""
    arrives = None if slots.arrives is None else jnp.pad(slots.arrives, (0, num_empty))
    return slots._replace(
        # Row 0 with weight zero: its result is computed and discarded, and its state is not
        # written.
        row_indices=jnp.pad(slots.row_indices, (0, num_empty)),
        places=jnp.pad(slots.places, (0, num_empty)),
        weights=jnp.pad(slots.weights, (0, num_empty)),
        arrives=arrives,
        can_be_empty=slots.can_be_empty or num_empty > 0,
    )


def client_function(context: RoundContext, message: PyTree, first_client: Array | int) -> OneClient:
    """Return ``(row, rows before, max_size) -> (result, finite)``: one client's work and codec."""
    algorithm, plan, data = context.algorithm, context.plan, context.data
    codec = codec_of(plan)
    # One stream for each purpose: a codec that draws more numbers leaves a client's own draws and
    # its minibatches unchanged, so that runs with and without it are comparable.
    client_key = purpose_key(context.key, CLIENT, context.index)
    encode_key = purpose_key(context.key, ENCODE, context.index)
    # Not folded by client: all clients and the server draw the same coin.
    shared_key = purpose_key(context.key, SHARED, context.index)

    def client_and_codec(hparams, message, before: Rows, local, key, encode_key):
        result = algorithm.client_update(hparams, message, before.states, local, key)
        # Without this check a scan fails over its carry, in a message that does not name
        # client_update.
        require_same_form("client_update", before.states, result.state)
        if codec is None:
            return result._replace(state=Rows(result.state, before.residuals))
        upload, residual = through_codec(
            codec, hparams, result.upload, before.residuals, encode_key, shared_key
        )
        return result._replace(state=Rows(result.state, residual), upload=upload)

    # Uploads and states decide whether a client counts; a metric that is NaN only shows in the
    # history. The codec is inside the guard, because encoding can overflow too.
    compute = guarded(client_and_codec, lambda result: (result.upload, result.state))

    @functools.partial(jax.jit, static_argnames="max_size")  # traced once for all uses
    def one_client(row, before: Rows, max_size=data.max_size) -> tuple[ClientResult, Array]:
        # Keys are folded by the index in the population, so that a client draws the same on a mesh,
        # from disk, and in any chunk.
        client = first_client + row if data.held is None else data.held.members[row]
        local = local_handle(data, plan.work, context.key, context.index, client, row, max_size)
        keys = jax.random.fold_in(client_key, client), jax.random.fold_in(encode_key, client)
        return compute(context.hparams, message, before, local, *keys)

    return one_client


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


def through_codec(
    codec: Codec, hparams: PyTree, upload: PyTree, residual: PyTree, key: Key, round_key: Key
) -> tuple[PyTree, PyTree]:
    """Return the upload that the server decodes, and the client's new residual.

    Args:
      codec: the plan's codec.
      hparams: the hyperparameters of the round.
      upload: the client's upload.
      residual: the client's residual.
      key: the client's key in this round.
      round_key: the key that all clients share in this round.
    """
    payload, public, join = split(upload)
    encoded, after = codec.encode(hparams, payload, residual, key, round_key)
    require_same_form("encode of the codec", residual, after, "residual")
    return decoded_upload(codec, encoded, payload, public, join), after


def _chunk_results(
    context: RoundContext,
    one_client: OneClient,
    can_be_empty: bool,
    rows: Array,
    weights: Array,
    before: Rows,
) -> tuple[ClientResult, Array]:
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
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    # One condition for all runs of a sweep. With one for each seed XLA ran both sides and copied
    # all examples for each: 37 ms a round in place of 1, for 2 x 3 runs over 4,000 clients.
    needed = batch_max(jnp.any(weights > 0))
    return jax.lax.cond(needed, results, lambda rows, before: zeros, rows, before)
