"""One round: draw the cohort, broadcast, let the clients work, take one mean, step the server.

The weighted mean of the uploads is the only thing that crosses clients. It is accumulated chunk
after chunk, so memory is one chunk of clients and not one cohort.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Cohort
from fcojax.algorithms.local import Local, Work
from fcojax.engine import ragged
from fcojax.engine.cohort import Sampler
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, PyTree

# Purposes that randomness is split by before anything else, so that no stream meets another.
COHORT, CLIENT, BATCHES, SERVER = range(4)

# A chunk of clients should stay in a core's cache between a client's first step and its last; an
# accelerator would rather have all clients at once.
_CHUNK_BYTES = {"cpu": 1 << 20}
_CHUNK_BYTES_ELSEWHERE = 2 << 30
# Chunk-mates pay for the largest of them. Of sizes that are log-uniform from 1 to 5,000, cut in
# so many chunks of clients as alike as can be, a sixth of the rows is padding.
_CHUNKS_OF_RAGGED = 24
# Clients side by side put their axis between the points of a sweep and the features, so that a CPU
# transposes before each product; only where states are tiny is that cheaper than one by one.
_CHUNK_BYTES_OF_SWEEPS = {"cpu": 1 << 17}


class Plan(NamedTuple):
    """How rounds are driven; static, hashable, and equal when its parts are.

    Attributes:
      work: how much each client does.
      cohort: who takes part.
      client_chunk_size: clients that work side by side under ``vmap``; ``None`` for all of them.
    """

    work: Work
    cohort: Sampler
    client_chunk_size: int | None = None


class Tally(NamedTuple):
    """Sums over the clients seen so far."""

    weighted: tuple[PyTree, dict]  # uploads and metrics, each times its client's weight
    weight: Array
    participants: Array
    dropped: Array
    lost: Array | None  # uploads that were fine and did not arrive, where the cohort loses any


def one_round(
    algorithm: Algorithm,
    plan: Plan,
    hparams: PyTree,
    data: ClientData,
    server: PyTree,
    clients: PyTree,
    key: Key,
    index: Array,
) -> tuple[PyTree, PyTree, dict[str, Array]]:
    """Round ``index`` from the given states to the next ones, and what there is to say of it.

    Runs on one device, or inside ``shard_map`` on each device of the ``clients`` axis with that
    device's part of ``data`` and ``clients``. A client whose upload or new state is not finite is
    dropped with weight zero and counted; a round in which nothing is left changes nothing.
    """
    cohort = draw_cohort(plan, data, key, index)
    message = algorithm.broadcast(hparams, server)
    tally, clients = _clients_work(
        algorithm, plan, hparams, data, message, clients, cohort, key, index
    )
    population_weight = jnp.sum(data.weights)
    if data.num_shards > 1:
        tally, population_weight = jax.lax.psum((tally, population_weight), "clients")
    weight = jnp.where(tally.weight > 0, tally.weight, 1)
    mean_upload, metrics = tree.scale(1 / weight, tally.weighted)
    cohort = cohort._replace(fraction=tally.weight / population_weight)
    moved = algorithm.server_update(
        hparams, server, mean_upload, cohort, purpose_key(key, SERVER, index)
    )
    heard = (tally.weight > 0) & tree.all_finite(mean_upload)
    counts = {"participants": tally.participants, "dropped": tally.dropped}
    if tally.lost is not None:
        counts["lost"] = tally.lost
    return tree.where(heard, moved, server), clients, metrics | counts


def purpose_key(key: Key, purpose: int, index: Array) -> Key:
    """The key of one purpose in one round."""
    return jax.random.fold_in(jax.random.fold_in(key, purpose), index)


def draw_cohort(plan: Plan, data: ClientData, key: Key, index: Array) -> Cohort:
    """Who takes part in round ``index``: on every device of a mesh the same answer.

    The sampler's key is that of the purpose alone, the same in all rounds.
    """
    sizes = jnp.diff(data.offsets)
    if data.mesh is not None:
        # Dead code, and gone from the compiled program, unless the sampler looks at sizes.
        sizes = jax.lax.all_gather(sizes, "clients", tiled=True)[: data.num_clients]
    return plan.cohort(jax.random.fold_in(key, COHORT), index, data.num_clients, sizes)


def local_handle(
    data: ClientData,
    work: Work,
    key: Key,
    index: Array,
    client: Array,
    row: Array,
    max_size: int | None = None,
) -> Local:
    """The handle of global client ``client``, whose entry in this device's lists is ``row``.

    Its rows are padded to ``max_size``, by default the largest client's.
    """
    return Local(
        rows=data.examples,
        client=jnp.asarray(client),
        offset=data.offsets[row],
        num_examples=data.offsets[row + 1] - data.offsets[row],
        key=jax.random.fold_in(purpose_key(key, BATCHES, index), client),
        work=work,
        min_size=data.min_size,
        max_size=max_size or data.max_size,
    )


def draws(
    plan: Plan, data: ClientData, key: Key, index: Array
) -> tuple[Array, Array, Array, Array]:
    """The luck of round ``index`` without its work, for those who replay a run elsewhere.

    Takes the population as it is on one device; on a mesh the luck is the same.

    Returns:
      The members, their weights in the mean, zero also for a lost upload, and for each the indices
      of its minibatches among its own examples with their weights, zero also in the steps that a
      client does not take.
    """
    cohort = draw_cohort(plan, data, key, index)
    members = cohort.members
    if members is None:
        members = jnp.arange(data.num_clients, dtype=jnp.int32)

    def batches(client):
        local = local_handle(data, plan.work, key, index, client, client)
        steps = jnp.arange(plan.work.max_steps(data.max_size), dtype=jnp.int32)
        indices, weights = local.draw(steps)
        weights = jnp.ones(indices.shape) if weights is None else weights
        taken = steps < local.num_steps
        return indices, jnp.where(taken[:, None], weights, 0)

    weights = cohort.weights * data.weights[members]
    if cohort.arrives is not None:
        weights = jnp.where(cohort.arrives, weights, 0)
    return members, weights, *jax.vmap(batches)(members)


def _clients_work(algorithm, plan, hparams, data, message, clients, cohort, key, index):
    """Runs the cohort's clients that this device owns; their tally, and all states put back."""
    first_client = 0
    can_be_absent = plan.cohort.can_be_absent
    members, weights, arrives = cohort.members, cohort.weights, cohort.arrives
    if data.num_shards > 1:
        first_client = jax.lax.axis_index("clients") * data.clients_per_shard
        can_be_absent = True
        if members is None:
            members = first_client + jnp.arange(data.clients_per_shard, dtype=jnp.int32)
            weights = weights.at[members].get(mode="fill", fill_value=0)
            if arrives is not None:
                arrives = arrives.at[members].get(mode="fill", fill_value=False)
        mine = (members >= first_client) & (members < first_client + data.clients_per_shard)
        # Own members first: the chunks after them are empty and are skipped.
        order = jnp.argsort(~mine)
        members, weights = members[order], jnp.where(mine, weights, 0)[order]
        arrives = None if arrives is None else arrives[order]
    elif members is None:
        members = jnp.arange(data.num_clients, dtype=jnp.int32)
    num_places = members.shape[0]
    num_chunks = -(-num_places // (plan.client_chunk_size or num_places))
    per_chunk = -(-num_places // num_chunks)
    padding = num_chunks * per_chunk - num_places
    can_be_absent = can_be_absent or padding > 0
    rows = jnp.pad(members - first_client, (0, padding))
    rows = jnp.clip(rows, 0, data.clients_per_shard - 1)
    weights = jnp.pad(weights, (0, padding))
    weights = jnp.where(weights > 0, weights * data.weights[rows], 0)
    arrives = None if arrives is None else jnp.pad(arrives, (0, padding))
    client_key = purpose_key(key, CLIENT, index)

    bounds = ragged.bounds_for(plan.work, data)
    if ragged.sizes_matter(plan.work, data) and 1 < per_chunk < num_places:
        order = ragged.alike(ragged.needs(data, rows, weights))
        rows, weights = rows[order], weights[order]
        arrives = None if arrives is None else arrives[order]

    def one_client(row, client_state, max_size=data.max_size) -> ClientResult:
        client = first_client + row
        local = local_handle(data, plan.work, key, index, client, row, max_size)
        return algorithm.client_update(
            hparams, message, client_state, local, jax.random.fold_in(client_key, client)
        )

    def padded_results(max_size, rows, before):
        work = functools.partial(one_client, max_size=max_size)
        if per_chunk > 1:
            return jax.vmap(work)(rows, before)
        result = work(rows[0], jax.tree.map(lambda leaf: leaf[0], before))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], result)

    def one_chunk(carry, chunk):
        tally, clients = carry
        rows, weights, arrives = chunk
        before = jax.tree.map(lambda leaf: leaf[rows], clients)

        def chunk_results(rows, before):
            if len(bounds) == 1:
                return padded_results(data.max_size, rows, before)
            which = ragged.branch(bounds, ragged.needs(data, rows, weights))
            branches = [functools.partial(padded_results, bound) for bound in bounds]
            return jax.lax.switch(which, branches, rows, before)

        if can_be_absent:
            nothing = jax.tree.map(
                lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                jax.eval_shape(chunk_results, rows, before),
            )
            result = jax.lax.cond(
                jnp.any(weights > 0),
                chunk_results,
                lambda rows, before: nothing,
                rows,
                before,
            )
        else:
            result = chunk_results(rows, before)
        tally, kept = _add(tally, result, weights, arrives)
        # Rows beyond the end are not written: absent and dropped clients keep their state.
        target = jnp.where(kept, rows, data.clients_per_shard)
        clients = jax.tree.map(
            lambda all_rows, new: all_rows.at[target].set(new, mode="drop"), clients, result.state
        )
        return (tally, clients), None

    chunks = jax.tree.map(
        lambda places: places.reshape(num_chunks, per_chunk), (rows, weights, arrives)
    )
    start = (_empty_tally(one_client, rows, clients, weights, arrives), clients)
    if num_chunks == 1:
        return one_chunk(start, jax.tree.map(lambda leaf: leaf[0], chunks))[0]
    return jax.lax.scan(one_chunk, start, chunks)[0]


def _empty_tally(one_client, rows, clients, weights, arrives) -> Tally:
    row = jax.tree.map(lambda leaf: leaf[0], clients)
    result = jax.eval_shape(one_client, rows[0], row)
    weighted = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), (result.upload, result.metrics)
    )
    none = jnp.zeros((), jnp.int32)
    lost = None if arrives is None else none
    return Tally(weighted, jnp.zeros((), weights.dtype), none, none, lost)


def _add(
    tally: Tally, result: ClientResult, weights: Array, arrives: Array | None
) -> tuple[Tally, Array]:
    """The tally with one more chunk in it, and which of the chunk's new states are kept."""
    present = weights > 0
    kept = present & jax.vmap(tree.all_finite)((result.upload, result.state))
    heard = kept if arrives is None else kept & arrives
    weights = jnp.where(heard, weights, 0)

    def accumulate(total, terms):
        columns = weights.astype(terms.dtype).reshape(-1, *(1,) * (terms.ndim - 1))
        # Masked before it is multiplied: zero times NaN is NaN.
        counted = jnp.where(heard.reshape(columns.shape), columns * terms, 0)
        return total + jnp.sum(counted, axis=0)

    weighted = jax.tree.map(accumulate, tally.weighted, (result.upload, result.metrics))
    tally = Tally(
        weighted,
        tally.weight + jnp.sum(weights),
        tally.participants + jnp.sum(present, dtype=jnp.int32),
        tally.dropped + jnp.sum(present & ~kept, dtype=jnp.int32),
        None if tally.lost is None else tally.lost + jnp.sum(kept & ~heard, dtype=jnp.int32),
    )
    return tally, kept


def chunk_size(
    work: Work, data: ClientData, state_bytes: int, num_places: int, num_points: int
) -> int:
    """As many clients as keep one step's working set within the backend's budget.

    ``state_bytes`` is one point's; the points of a sweep share the examples.
    """
    row_bytes = sum(
        leaf.dtype.itemsize * leaf.size // leaf.shape[0] for leaf in jax.tree.leaves(data.examples)
    )
    examples_a_step = min(work.batch_size or data.max_size, data.max_size)
    # A step holds its examples, its iterate, the model read from it, and the gradient.
    client_bytes = examples_a_step * row_bytes + 3 * num_points * state_bytes
    budgets = _CHUNK_BYTES_OF_SWEEPS if num_points > 1 else _CHUNK_BYTES
    budget = budgets.get(jax.default_backend(), _CHUNK_BYTES_ELSEWHERE)
    chunk = max(1, min(num_places, budget // max(client_bytes, 1)))
    if not ragged.sizes_matter(work, data):
        return chunk
    return min(chunk, max(2, num_places // _CHUNKS_OF_RAGGED))


def message_bytes(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, params: PyTree, data: ClientData
) -> tuple[int, int]:
    """Bytes that one client receives and sends in one round, read off the message pytrees."""

    def one_client(hparams, params, data, key):
        server, client = algorithm.init(hparams, params)
        message = algorithm.broadcast(hparams, server)
        zero = jnp.zeros((), jnp.int32)
        local = local_handle(data.local(), plan.work, key, zero, zero, zero)
        return message, algorithm.client_update(hparams, message, client, local, key).upload

    down, up = jax.eval_shape(one_client, hparams, params, data, jax.random.key(0))
    return tree.num_bytes(down), tree.num_bytes(up)
