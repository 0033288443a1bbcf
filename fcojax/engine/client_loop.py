"""The loop over the clients of a cohort, chunk by chunk, into one weighted sum.

Only one chunk of clients is in memory at a time. A client is *counted* if its upload is finite and
no transform leaves it out; only then does it enter the sums and keep its new state.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax.engine import members
from fcojax.engine.members import (
    CLIENT,
    ENCODE,
    SHARED,
    Slots,
    local_handle,
    purpose_key,
    sizes_of_all,
)
from fcojax.engine.nonfinite import guarded
from fcojax.engine.plan import Plan
from fcojax.engine.state import Memory
from fcojax.engine.tally import (
    RoundContext,
    Rows,
    Tally,
    Upload,
    add_clients,
    empty_tally,
    through_chain,
)
from fcojax.types import Array, PyTree
from fcojax.uploads.contract import MEAN, At, require_same_form
from fcojax.xla.loops import batch_max, or_zeros
from fcojax.xla.rules import rules

# (row, rows before, max_size) -> (upload, rows after, whether both are finite)
OneClient = Callable[..., tuple[Upload, Rows, Array]]


def run_clients(
    context: RoundContext, one_client: OneClient, one: Upload, slots: Slots, rows: Rows
) -> tuple[Tally, Rows]:
    """Run the clients in these slots; return the sums, and the rows of all clients.

    ``one_client`` is from ``client_function``, and ``one`` has the shapes of its upload. Weights of
    slots are shares that add up to at most one, so that no sum of finite uploads overflows. In the
    rows that are returned counted clients have their new states.
    """
    plan, data, num_slots = context.plan, context.data, slots.row_indices.shape[0]
    num_chunks = -(-num_slots // (plan.client_chunk_size or num_slots))
    # Evenly: ten members in chunks of at most eight run as five and five; eight and two would
    # compute six empty slots. A slot that fills a chunk up is row 0 with weight zero.
    per_chunk = -(-num_slots // num_chunks)
    empty = num_chunks * per_chunk - num_slots
    columns = slots.row_indices, slots.places, slots.weights, context.drawn[1]
    columns = jax.tree.map(lambda x: jnp.pad(x, [(0, empty), *[(0, 0)] * (x.ndim - 1)]), columns)
    # A single chunk is empty only if the whole cohort is. On an accelerator the host would wait for
    # the branch's condition in every round.
    can_be_empty = slots.can_be_empty or empty > 0
    can_be_empty = can_be_empty and not (num_chunks == 1 and rules().masks)
    # Chunks of clients of similar size save rows and steps, with absent clients, which count as
    # empty, in the last chunks. A single chunk pads to the largest client in any order, and a chunk
    # of one client pads to its own size.
    if members.sizes_matter(plan.work, data) and 1 < per_chunk < num_slots:
        order = jnp.argsort(-members.num_examples_of(data, columns[0], columns[2]))
        columns = jax.tree.map(lambda column: column[order], columns)

    def one_chunk(carry, chunk):
        tally, all_rows = carry
        indices, places, weights, drawn = chunk
        before = jax.tree.map(lambda leaf: leaf[indices], all_rows), drawn
        # The clients of a chunk run side by side: on a CPU as many as a core's cache holds, on a
        # GPU as many as memory holds. On a CPU W2 takes 27 ms a round one by one, 37 by four, 116
        # with all 59 at once.
        given = context, one_client, can_be_empty, indices, weights, before
        clients, states, finite = _chunk_results(*given)
        tally, counted = add_clients(context, tally, clients, finite, weights, places)
        # Writes beyond the last row are dropped: clients that are not counted keep their state.
        target = jnp.where(counted, indices, data.clients_per_shard)
        after = jax.tree.map(
            lambda leaf, new: leaf.at[target].set(new, mode="drop"), all_rows, states
        )
        return (tally, after), None

    # Places of the whole draw, not the slots of this device: a `STACK` writes each client at its
    # place, so that the stacks of devices have disjoint rows and their sum is the cohort.
    num_places = plan.cohort.size(data.num_clients)
    start = (empty_tally(context, one, num_places, slots.weights.dtype), rows)
    if num_chunks == 1:
        return one_chunk(start, columns)[0]
    chunks = jax.tree.map(lambda column: column.reshape(num_chunks, per_chunk), columns)
    return jax.lax.scan(one_chunk, start, chunks)[0]


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
        at = at._replace(inclusion=inclusion)
        return through_chain(plan, at, result, before.residuals, memory)

    # Uploads and states decide whether a client counts; a metric that is NaN only shows in the
    # history. The chain is inside the guard, because encoding can overflow too.
    compute = guarded(client_and_chain, lambda result: (result[0].own, result[0].public, result[1]))

    @functools.partial(jax.jit, static_argnames="max_size")  # traced once for all uses
    def one_client(row, before: tuple, *, max_size: int) -> tuple[Upload, Rows, Array]:
        # Keys are folded by the index in the population, so that a client draws the same on a mesh,
        # from disk, and in any chunk.
        client = client_of(row)
        local = local_handle(data, plan.work, context.key, context.index, client, row, max_size)
        before, local = before[0], dataclasses.replace(local, drawn=before[1])
        key = jax.random.fold_in(client_key, client)
        own = jax.random.fold_in(encode_key, client)
        given = context.hparams, message, before, context.memory, local, key
        (upload, states), finite = compute(*given, context.index, client, own, shared_key)
        return upload, states, finite

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


def _chunk_results(
    context: RoundContext,
    one_client: OneClient,
    can_be_empty: bool,
    rows: Array,
    weights: Array,
    before: tuple,
) -> tuple[Upload, Rows, Array]:
    """Return one chunk's results, padded to the smallest bound that holds it; zeros if empty."""
    # Row counts to pad to, ascending; only one for minibatches, which need none.
    data, work = context.data, context.plan.work
    bounds = (data.max_size,) if work.batch_size else data.size_bounds

    def padded_results(max_size, rows, before):
        compute = functools.partial(one_client, max_size=max_size)
        # An axis of one client would only slow compilation down.
        if rows.shape[0] > 1:
            return jax.vmap(compute)(rows, before)
        result = compute(rows[0], jax.tree.map(lambda leaf: leaf[0], before))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], result)

    def results(rows, before):
        if len(bounds) == 1:
            return padded_results(data.max_size, rows, before)
        sizes = members.num_examples_of(data, rows, weights)
        branches = [functools.partial(padded_results, bound) for bound in bounds]
        # One of these branches runs: a chunk of small clients is not padded to the largest client.
        return jax.lax.switch(members.branch(bounds, sizes), branches, rows, before)

    if not can_be_empty:
        return results(rows, before)
    # One condition for all runs of a sweep. With one for each seed XLA ran both sides and copied
    # all examples for each: 37 ms a round in place of 1, for 2 x 3 runs over 4,000 clients.
    needed = batch_max(jnp.any(weights > 0))
    return or_zeros(needed, functools.partial(results, rows, before))
