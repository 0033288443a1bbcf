"""The random draws of a run, for programs that repeat it."""

import jax
import jax.numpy as jnp

from fcojax import ClientData, Plan
from fcojax.extend import draw_cohort, local_handle
from fcojax.types import Array, Key


def draws(
    plan: Plan, data: ClientData, key: Key, index: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the draws of round ``index`` without running it.

    The population must be on one device; on a mesh the draws are the same.

    Returns:
      The members; their weights in the mean, zero for an empty place; and for each
      member the indices of its minibatches among its own examples with their weights, which are
      also zero in steps that a client does not take.
    """
    cohort = draw_cohort(plan, data, key, index)
    members = cohort.members
    if members is None:
        members = jnp.arange(data.num_clients, dtype=jnp.int32)
    # Empty places may hold any index.
    members = jnp.where(cohort.present, members, 0)

    def batches(client):
        local = local_handle(data, plan.work, key, index, client, client)
        steps = jnp.arange(plan.work.max_steps(data.max_size), dtype=jnp.int32)
        indices, weights = local.draw(steps)
        weights = jnp.ones(indices.shape) if weights is None else weights
        taken = steps < local.num_steps
        return indices, jnp.where(taken[:, None], weights, 0)

    weights = jnp.where(cohort.present, data.weights[members], 0)
    return members, weights, *jax.vmap(batches)(members)
