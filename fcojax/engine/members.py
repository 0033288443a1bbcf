"""The members of a cohort that this device computes, chosen before the loop over clients.

The loop gets rows of this device's arrays, and a function that names the client of a row; it does
not know whether the other clients are on other devices or on disk.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax.engine.participation.base import Draw
from fcojax.engine.plan import Plan
from fcojax.problems.clients import ClientData
from fcojax.types import Array
from fcojax.xla.loops import small_slice


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


def slots_of(plan: Plan, data: ClientData, cohort: Draw) -> Slots:
    """Return the members of the cohort that this device computes, with their weights."""
    if data.num_shards > 1:
        cohort, places, first_client = _on_this_shard(data, cohort)
    else:
        places, first_client = jnp.arange(cohort.present.shape[0], dtype=jnp.int32), 0
    members, (_, present) = cohort.indices, cohort
    held = data.held
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
    weights = jnp.where(present, each, 0)
    # On a mesh even a full cohort leaves chunks empty: each device has places for all members.
    can_be_empty = plan.cohort.can_be_absent or data.num_shards > 1

    def client_of(row):
        return first_client + row if held is None else held.members[row]

    return Slots(rows, places, weights, client_of, can_be_empty)


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

    members = places if cohort.members is None else cohort.members[places]
    return Draw(members, here(cohort.present) & own), places, first_client
