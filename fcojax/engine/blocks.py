"""Blocks of rounds, one after the other: the loop of the host under all runs.

A block is one dispatch: a call of a compiled program, or one call for each group of points. It
donates the states that it advances. ``blocks`` keeps these rules for all of its callers:

- A block is dispatched before the previous one is yielded. The device works while the caller reads
  the history of the previous block, reports it and writes it.
- A state is asked for before the next dispatch donates it. The last block is yielded with its state
  in any case.
- Whether a point is over is decided by the block before the last one, which the caller has read. A
  run that resumes from the last block has read it too, so it leaves out the same points.
- Points that are over are left out once half of all are, if enough blocks are left to pay for a
  program. How they are left out is the caller's matter, as are groups of points, and repeats of
  points and seeds that fill up a group or a mesh.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.types import PyTree

# A program for fewer points is compiled only if it runs at least this many blocks.
_BLOCKS_WORTH_COMPILING = 10


class Block(NamedTuple):
    """The result of one block of rounds.

    Attributes:
      rounds: rounds since the start of the run.
      points: the points that took part, as indices of the grid.
      history: the measures at its end; with axes [points, seeds], on the host, in a ``Placed``
        sweep.
      state: the state of these points and all seeds, if it was requested. The next block overwrites
        it.
    """

    rounds: int
    points: np.ndarray
    history: PyTree
    state: Any = None


def blocks(
    advance: Callable[[np.ndarray, Any, int, int], tuple[Any, PyTree]],
    states: Any,
    ends: Sequence[int],
    *,
    first: int = 0,
    points: np.ndarray | None = None,
    is_over: Callable[[int, int], bool] = lambda point, rounds: False,
    keep: Callable[[np.ndarray, Any, np.ndarray], Any] | None = None,
    wants_state: Callable[[], bool] = lambda: False,
) -> Iterator[Block]:
    """Yield block after block, the last one with its states.

    Args:
      advance: ``(points, states, first, last) -> (states, history)``; dispatches one block.
      states: the states to continue from, which the first block donates.
      ends: the rounds at which blocks end, counted from the start of the run.
      first: number of rounds of ``states``.
      points: the points that run, as indices of the grid; one by default.
      is_over: ``(point, rounds)``, whether a point had ended by this round.
      keep: ``(points, states, alive) -> states``; leaves out all points but ``alive``. If it is
        ``None``, all points go on as long as one is not over.
      wants_state: called after a block is dispatched and the previous one is yielded; if true, the
        block is yielded with its states before another is dispatched.
    """
    pending, ends = None, sorted(ends)
    points = np.zeros(1, int) if points is None else points
    for index, last in enumerate(ends):
        if last <= first:
            continue
        known = max([0, *(end for end in ends if end < first)]) if first else -1
        alive = points[[not is_over(int(point), known) for point in points]]
        if not alive.size:
            break
        worthwhile = len(ends) - index >= _BLOCKS_WORTH_COMPILING
        if keep is not None and 2 * alive.size <= points.size and worthwhile:
            states, points = keep(points, states, alive), alive
        states, history = advance(points, states, first, last)
        if pending is not None:
            yield pending  # while this one is computed
        pending, first = Block(last, points, history), last
        if wants_state():
            yield pending._replace(state=states)
            pending = None
    if pending is not None:
        yield pending._replace(state=states)


def join_histories(histories: Sequence[PyTree], axis: int) -> PyTree:
    """Concatenate along the axis of evaluations."""

    def one(*leaves):
        if not leaves[0].is_fully_addressable:  # each process holds a part
            return jnp.concatenate(leaves, axis)
        # On the host, where a new number of evaluations needs no compilation.
        return jax.device_put(np.concatenate(jax.device_get(leaves), axis), leaves[0].sharding)

    return jax.tree.map(one, *histories)


def padded(points: np.ndarray, size: int) -> np.ndarray:
    """Repeat the last point until there are ``size``; the copies' results are not used."""
    return np.append(points, np.repeat(points[-1:], size - points.size))
