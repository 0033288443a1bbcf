"""Numbers that are not finite: in which round, at which point, whose."""

import jax
import numpy as np

from experiments.endings import Refused
from experiments.lines import Line
from fcojax.engine.culprit import first_culprit
from fcojax.engine.grid import take
from fcojax.engine.state import State
from fcojax.problems.clients import ids_of
from fcojax.types import PyTree


def refuse_bad_numbers(
    line: Line, before: State, points: np.ndarray, rounds: int, history: PyTree
) -> None:
    """Raises ``Refused`` if numbers were not finite in a block; tells the first one's culprit.

    ``before`` are the states at the block's start, and ``history`` is its look.
    """
    looks = jax.device_get(history)
    bad = np.asarray((looks["dropped"] > 0) | (looks["refused"] > 0))[..., 0]
    bad |= ~np.isfinite(looks["objective"][..., 0])
    if not bad.any():
        return
    seed, place = (int(index) for index in np.argwhere(bad)[0])
    point = int(points[min(place, points.size - 1)])
    entry = line.entry
    state = _one_of(jax.device_get(before), seed, place, line.data.num_clients)
    hparams = jax.tree.map(lambda leaf: leaf[0], take(entry.grid, np.array([point])))
    culprit = first_culprit(entry.algorithm, hparams, entry.train, state, entry.plan, rounds)
    named = zip(entry.grid._fields, line.names[point], strict=True)
    where = ", ".join(f"{field} = {value:g}" for field, value in named)
    if culprit is None:
        raise Refused(
            f"{entry.label} at {where}: the objective is not finite by round "
            f"{int(state.round) + rounds}, but all uploads are."
        )
    whose = "the server"
    if culprit.client is not None:
        whose = f"client {ids_of(entry.train)[culprit.client]}"
    raise Refused(
        f"{entry.label} at {where}: the first number that is not finite is in round "
        f"{culprit.round}, of {whose}, in {culprit.leaf}."
    )


def _one_of(states: State, seed: int, place: int, num_clients: int) -> State:
    """One run's state out of a sweep's, with rows for the clients that there are."""
    server, clients, residuals, bound = jax.tree.map(
        lambda leaf: leaf[seed, place],
        (states.server, states.clients, states.residuals, states.bound),
    )
    clients, residuals = jax.tree.map(lambda leaf: leaf[:num_clients], (clients, residuals))
    return State(server, clients, residuals, states.round, states.key[seed], bound)
