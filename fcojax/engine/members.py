"""The members of a cohort: their keys, their draw, their slots on a device, and their padding.

Keys are folded by purpose, then by round, then by client, so a client's draws do not depend on the
other members of the cohort, on chunks or on devices.

All of this is chosen before the loop over clients. The loop gets rows of this device's arrays, and
a function that names the client of a row; it does not know whether the other clients are on other
devices or on disk.

Shapes are static, so clients are padded if a step takes all of their rows. A population has a few
row counts to pad to; a chunk of clients of similar size runs the branch of the smallest count that
holds its largest client.
"""

import zlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax.algorithms.local import Local
from fcojax.algorithms.work import Work
from fcojax.engine.plan import Draw, Plan
from fcojax.problems.clients import Clients
from fcojax.types import Array, Key, PyTree
from fcojax.xla.loops import batch_max, small_slice
from fcojax.xla.rules import rules

# The first number folded into the key, so that no two streams coincide.
COHORT, CLIENT, BATCHES, SERVER, ENCODE, AGGREGATE, DOWN, SHARED = range(8)
# At most this many numbers of cohorts and minibatches are drawn ahead, for each seed.
_AHEAD = 1 << 22


class Slots(NamedTuple):
    """The members of the cohort that this device computes.

    Attributes:
      row_indices: row of each member in this device's arrays.
      places: place of each member in the draw.
      weights: weight p_m of each member, 0 if it is absent.
      client_of: ``(row) -> client``, its index in the population.
      can_be_empty: whether skipping chunks of absent members is worth a branch.
    """

    row_indices: Array
    places: Array
    weights: Array
    client_of: Callable[[Array], Array]
    can_be_empty: bool


def purpose_key(key: Key, purpose: int, index: Array) -> Key:
    """Return the key of one purpose in one round."""
    return jax.random.fold_in(jax.random.fold_in(key, purpose), index)


def folded_by(key: Key, hparams: PyTree) -> Key:
    """Return a key that differs between hyperparameters, their schedules and their types.

    Two releases with the same noise would reveal their difference without noise.
    """
    leaves, structure = jax.tree.flatten(hparams)
    key = jax.random.fold_in(key, zlib.crc32(f"{type(hparams).__name__} {structure}".encode()))
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    wide = [leaf if leaf.dtype.itemsize >= 4 else leaf.astype(jnp.float32) for leaf in arrays]
    words = [jax.lax.bitcast_convert_type(leaf, jnp.uint32).ravel() for leaf in wide]

    def fold(key, word):
        return jax.random.fold_in(key, word), None

    return jax.lax.scan(fold, key, jnp.concatenate(words))[0] if words else key


def draw_cohort(plan: Plan, data: Clients, key: Key, index: Array) -> Draw:
    """Return the cohort of round ``index``, the same on every device of a mesh.

    The sampler's key is the same in all rounds, so that a sampler can have memory.
    """
    key, index = jax.random.fold_in(key, COHORT), jnp.asarray(index, jnp.int32)
    drawn = plan.cohort.draw(key, index, data.num_clients, sizes_of_all(data))
    num_places = plan.cohort.size(data.num_clients)
    shapes = {name: jnp.shape(part) for name, part in drawn._asdict().items() if part is not None}
    if set(shapes.values()) != {(num_places,)}:
        raise ValueError(
            f"{plan.cohort} drew parts of shapes {shapes} where its size is {num_places}; return "
            f"arrays of shape ({num_places},)."
        )
    if drawn.members is not None and drawn.members.dtype != jnp.int32:
        raise ValueError(
            f"{plan.cohort} drew members of dtype {drawn.members.dtype}; return client indices as "
            "int32."
        )
    return drawn


def draws(plan: Plan, data: Clients, key: Key, first: Array, num_rounds: int) -> Callable:
    """Return ``(key, index) -> (cohort, minibatches)`` for the rounds from ``first`` on.

    Where a launch costs more than a draw, those of all rounds are drawn side by side, and a round
    reads its own. Otherwise it draws its cohort, and its clients draw their minibatches.
    """
    work, num_steps = plan.work, plan.work.max_steps(data.max_size)
    each = plan.cohort.size(data.num_clients) * num_steps * (work.batch_size or 0)
    # A sampler may draw a number for each client.
    few = 1 < num_rounds <= _AHEAD // (data.num_clients + each) and data.mesh is data.held is None
    if not (few and rules().few_kernels):
        return lambda key, index: (draw_cohort(plan, data, key, index), None)

    def of_round(index):
        def batches(row):
            local = local_handle(data, work, key, index, row, row)
            whole = work.batch_size and local.all_steps_equal
            return local.draw(jnp.arange(num_steps, dtype=jnp.int32)) if whole else None

        draw = draw_cohort(plan, data, key, index)
        return draw, jax.vmap(batches)(jnp.clip(draw.indices, 0, data.num_clients - 1))

    ahead = jax.vmap(of_round)(first + jnp.arange(num_rounds, dtype=jnp.int32))
    return lambda key, index: jax.tree.map(lambda leaf: leaf[index - first], ahead)


def sizes_of_all(data: Clients) -> Array:
    """Return the number of examples of each client of the population, also inside a mesh."""
    sizes = jnp.diff(data.offsets) if data.held is None else data.held.sizes
    if data.mesh is None:
        return sizes
    # XLA removes this from the compiled program, unless the sampler uses sizes.
    return jax.lax.all_gather(sizes, "clients", tiled=True)[: data.num_clients]


def slots_of(plan: Plan, data: Clients, cohort: Draw) -> Slots:
    """Return the members of the cohort that this device computes, with their weights."""
    if data.num_shards > 1:
        cohort, places, first_client = _on_this_shard(data, cohort)
    else:
        places, first_client = jnp.arange(cohort.present.shape[0], dtype=jnp.int32), 0
    members, held = cohort.indices, data.held
    if held is None:
        rows = members - first_client
    else:
        # A block of a population on disk holds some clients, in ascending order.
        rows = jnp.searchsorted(held.members, members).astype(members.dtype)
    # Absent places, and other devices' members, have no row here: they compute some row of this
    # device, with weight zero.
    rows = jnp.clip(rows, 0, data.clients_per_shard - 1)
    # In place of `data.weights[rows]`: on a CPU XLA runs a gather from a long array on all cores, 4
    # microseconds for ten numbers out of a million.
    each = jax.vmap(lambda row: small_slice(data.weights, row, 1)[0])(rows)
    weights = jnp.where(cohort.present, each, 0)
    # On a mesh even a full cohort leaves chunks empty: each device has places for all members.
    can_be_empty = plan.cohort.can_be_absent or data.num_shards > 1

    def client_of(row):
        return first_client + row if held is None else held.members[row]

    return Slots(rows, places, weights, client_of, can_be_empty)


def _on_this_shard(data: Clients, cohort: Draw) -> tuple[Draw, Array, Array]:
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

    members = places if cohort.members is None else cohort.members[places]
    return Draw(members, here(cohort.present) & own), places, first_client


def local_handle(
    data: Clients,
    work: Work,
    key: Key,
    index: Array,
    client: Array,
    row: Array,
    max_size: int | None = None,
) -> Local:
    """Return the handle through which a client reads its own examples.

    ``data`` are the clients of this device, ``key`` and ``index`` those of the run and the round.
    ``client`` is the client's index in the population, ``row`` in this device's arrays, and
    ``max_size`` the rows to pad to, by default the largest client's.
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


def sizes_matter(work: Work, data: Clients) -> bool:
    """Return whether clients of different sizes have different amounts of work."""
    if work.batch_size is None:
        # Each step takes all rows: sizes matter if clients are padded to different bounds.
        return len(data.size_bounds) > 1
    # Minibatches have one size; clients then differ only in their number of steps, as with epochs.
    return work.max_steps(data.min_size) < work.max_steps(data.max_size)


def num_examples_of(data: Clients, rows: Array, weights: Array) -> Array:
    """Return the number of examples of the clients in these rows, 0 for an absent one."""
    return jnp.where(weights > 0, data.offsets[rows + 1] - data.offsets[rows], 0)


def branch(bounds: tuple[int, ...], sizes: Array) -> Array:
    """Return the index of the smallest bound that holds a chunk's clients, in all mapped runs."""
    # A bound that differed between the runs of a sweep would turn the branch into a `select`, which
    # computes every bound.
    largest = batch_max(jnp.max(sizes))
    return jnp.sum(jnp.asarray(bounds[:-1], largest.dtype) < largest, dtype=jnp.int32)
