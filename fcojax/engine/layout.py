"""How many clients work side by side, by the rules for the device in ``fcojax.device``."""

from collections.abc import Callable

import jax

from fcojax import tree
from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.device import rules
from fcojax.engine import ragged
from fcojax.engine.memory import OFTEN, as_many_as_fit, needed_bytes, room
from fcojax.engine.plan import Plan
from fcojax.problems.clients import ClientData
from fcojax.types import PyTree

# Of two chunk sizes, the compiled program of a round; ``None`` if there is nothing to compile.
Lower = Callable[[int], jax.stages.Lowered]


def sized(
    plan: Plan,
    algorithm: Algorithm,
    hparams: PyTree,
    server: PyTree,
    data: ClientData,
    num_points: int = 1,
    lower: Lower | None = None,
) -> Plan:
    """The plan with a chunk size that suits the backend, unless it names one.

    ``hparams`` and ``server`` are those of one run, or their shapes; ``num_points`` runs share a
    step's examples but each has states of its own. ``lower`` makes a round's program with so many
    clients side by side, for devices on which memory is all that limits them; without it, what a
    step computes is taken to be as large as it may well be.
    """
    if plan.client_chunk_size is not None:
        return plan
    num_places = plan.cohort.size(data.num_clients)
    each = client_bytes(plan.work, algorithm, hparams, server, data, num_points)
    size = chunk_size(plan.work, data, each, num_places, num_points, lower)
    return plan._replace(client_chunk_size=size)


def client_bytes(
    work: Work,
    algorithm: Algorithm,
    hparams: PyTree,
    server: PyTree,
    data: ClientData,
    num_points: int = 1,
) -> int:
    """A step's working set of one client, without what is computed on the way.

    That is its examples, which the points of a sweep share, and for each point its iterate, the
    model read from it, and the gradient.
    """
    state_bytes = tree.num_bytes(jax.eval_shape(algorithm.broadcast, hparams, server))
    row_bytes = sum(
        leaf.dtype.itemsize * leaf.size // leaf.shape[0] for leaf in jax.tree.leaves(data.examples)
    )
    examples_a_step = min(work.batch_size or data.max_size, data.max_size)
    return max(1, examples_a_step * row_bytes + 3 * num_points * state_bytes)


def chunk_size(
    work: Work,
    data: ClientData,
    each: int,
    num_places: int,
    num_points: int = 1,
    lower: Lower | None = None,
) -> int:
    """As many clients of ``each`` bytes as the backend's rules put side by side."""
    rule = rules()
    budget = rule.chunk_bytes if num_points == 1 else rule.sweep_chunk_bytes
    if budget is not None:
        chunk = min(num_places, budget // each)
    else:
        chunk = _that_fit(each, num_places, lower)
    if ragged.sizes_matter(work, data):
        chunk = min(chunk, max(2, num_places // rule.ragged_chunks))
    return max(1, chunk)


def _that_fit(each: int, num_places: int, lower: Lower | None) -> int:
    """As many clients as memory holds, with what their steps compute on the way."""
    free = room()
    if num_places <= 4 or num_places * each * OFTEN <= free:
        return num_places
    fit = None if lower is None else as_many_as_fit(lower, 2, 4, free)
    if lower is None or fit is None:
        return max(1, int(free / (OFTEN * each)))
    fit = min(num_places, fit)
    # Chunks that do not divide the cohort are padded, which no smaller program has shown.
    while fit > 1 and (needed_bytes(lower(fit).compile()) or 0) > free:
        fit = fit * 3 // 4
    return fit


def pays_to_share(each: int, num_places: int, num_steps: int, num_devices: int) -> bool | None:
    """Whether a round has so much to read that devices should share its clients.

    ``None`` where the rules leave it to whether clients work one by one.
    """
    least = rules().bytes_to_share
    if least is None:
        return None
    return each * num_places * num_steps >= least * num_devices
