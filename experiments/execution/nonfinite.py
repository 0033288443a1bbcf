"""Name the first number that is not finite: in which round, at which point, of which client."""

from collections.abc import Sequence

import jax
import numpy as np

from experiments.execution.jobs import PreparedJob
from experiments.process.errors import UserError
from fcojax import State
from fcojax.extend import find_first_nonfinite, join_points, take
from fcojax.problems.clients import ids_of
from fcojax.types import PyTree


def refuse_nonfinite(
    prepared: PreparedJob,
    before: Sequence[State],
    points: np.ndarray,
    rounds: int,
    histories: Sequence[PyTree],
) -> None:
    """Raise ``UserError`` if a block of rounds had numbers that were not finite.

    Args:
      prepared: the job.
      before: the states at the start of the block, one for each call of the program.
      points: the points of the grid that these are of.
      rounds: the rounds of the block.
      histories: what each call returned.
    """
    parts = jax.device_get(list(histories))
    found = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    bad = np.asarray((found["dropped"] > 0) | (found["refused"] > 0))[..., 0]
    bad |= ~np.isfinite(found["objective"][..., 0])
    if not bad.any():
        return
    job, data = prepared.job, prepared.data
    place, seed = (int(index) for index in np.argwhere(bad)[0])
    point = int(points[min(place, points.size - 1)])
    state = _one_of(jax.device_get(join_points(before)), seed, place, data.num_clients)
    hparams = jax.tree.map(lambda leaf: leaf[0], take(job.grid, np.array([point])))
    first = find_first_nonfinite(
        job.algorithm, hparams, state, job.train, job.plan, num_rounds=rounds
    )
    named = zip(job.grid._fields, prepared.names[point], strict=True)
    where = f"{job.label} at {', '.join(f'{field} = {value:g}' for field, value in named)}"
    if first is None:
        raise UserError(
            f"{where}: the objective is not finite by round {int(state.round) + rounds}, but all "
            "uploads are."
        )
    whose = "the server" if first.client is None else f"client {ids_of(job.train)[first.client]}"
    raise UserError(
        f"{where}: the first number that is not finite is in round {first.round}, of {whose}, in "
        f"{first.leaf}."
    )


def _one_of(states: State, seed: int, place: int, num_clients: int) -> State:
    """Return one run's state out of a sweep's, without clients that fill up a mesh."""
    server, clients, residuals, memory = jax.tree.map(
        lambda leaf: leaf[place, seed],
        (states.server, states.clients, states.residuals, states.memory),
    )
    clients, residuals = jax.tree.map(lambda leaf: leaf[:num_clients], (clients, residuals))
    return State(server, clients, residuals, states.round, states.key[seed], memory)
