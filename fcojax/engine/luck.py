"""What a run's key decides: who takes part in a round, and which examples each client sees.

Randomness is split by purpose, then by round, then by client. Who else takes part, in which chunk
and on which device, changes nobody's draws.
"""

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Cohort
from fcojax.algorithms.local import Local
from fcojax.algorithms.work import Work
from fcojax.engine.plan import Plan
from fcojax.pieces import piece
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key

# Purposes that randomness is split by before anything else, so that no stream meets another.
COHORT, CLIENT, BATCHES, SERVER, ENCODE, FINISH = range(6)


def purpose_key(key: Key, purpose: int, index: Array) -> Key:
    """The key of one purpose in one round."""
    return jax.random.fold_in(jax.random.fold_in(key, purpose), index)


def draw_cohort(plan: Plan, data: ClientData, key: Key, index: Array) -> Cohort:
    """Who takes part in round ``index``: on every device of a mesh the same answer.

    The sampler's key is that of the purpose alone, the same in all rounds.
    """
    sizes = jnp.diff(data.offsets) if data.held is None else data.held.sizes
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
    first, end = piece(data.offsets, row, 2)
    return Local(
        rows=data.examples,
        client=jnp.asarray(client),
        offset=first,
        num_examples=end - first,
        key=jax.random.fold_in(purpose_key(key, BATCHES, index), client),
        work=work,
        min_size=data.min_size,
        max_size=max_size or data.max_size,
    )


def draws(
    plan: Plan, data: ClientData, key: Key, index: Array
) -> tuple[Array, Array, Array, Array]:
    """The draws of round ``index`` without its work, for those who replay a run elsewhere.

    Takes the population as it is on one device; on a mesh the draws are the same.

    Returns:
      The members, their weights in the mean, zero for a place that is empty or whose upload is
      lost, and for each member the indices of its minibatches among its own examples with their
      weights, zero also in the steps that a client does not take.
    """
    cohort = draw_cohort(plan, data, key, index)
    members = cohort.members
    if members is None:
        members = jnp.arange(data.num_clients, dtype=jnp.int32)
    # Samplers may leave anything in places that are empty.
    members = jnp.where(cohort.weights > 0, members, 0)

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
