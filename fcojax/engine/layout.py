"""How many clients work side by side, and over which devices: rules with measured numbers."""

import jax

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine import ragged
from fcojax.engine.plan import Plan
from fcojax.problems.clients import ClientData
from fcojax.types import PyTree

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


def sized(
    plan: Plan,
    algorithm: Algorithm,
    hparams: PyTree,
    server: PyTree,
    data: ClientData,
    num_points: int = 1,
) -> Plan:
    """The plan with a chunk size that suits the backend, unless it names one.

    ``hparams`` and ``server`` are those of one run, or their shapes; ``num_points`` runs share a
    step's examples but each has states of its own.
    """
    if plan.client_chunk_size is not None:
        return plan
    message = jax.eval_shape(algorithm.broadcast, hparams, server)
    num_places = plan.cohort.size(data.num_clients)
    size = chunk_size(plan.work, data, tree.num_bytes(message), num_places, num_points)
    return plan._replace(client_chunk_size=size)


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
