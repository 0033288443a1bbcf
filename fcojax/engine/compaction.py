"""Drop grid points that have finished or diverged from a running sweep, and put them back."""

from collections.abc import Sequence

import jax
import numpy as np

from fcojax.engine.state import State
from fcojax.types import PyTree


def padded(points: np.ndarray, size: int) -> np.ndarray:
    """Repeat the last point until there are ``size``; the copies' results are not used.

    Example:
      >>> padded(np.array([2, 5]), 4).tolist()
      [2, 5, 5, 5]
    """
    return np.append(points, np.repeat(points[-1:], size - points.size))


def halved(size: int, needed: int) -> int:
    """Halve ``size``, rounding up, as long as ``needed`` points fit; so few sizes are compiled.

    Example:
      >>> halved(49, 20), halved(49, 3), halved(49, 30)
      (25, 4, 49)
    """
    while size > needed and -(-size // 2) >= needed:
        size = -(-size // 2)
    return size


def take_points(state: State, points: np.ndarray) -> State:
    """Return a sweep's state at some points; all points share the round and the keys."""
    return state._replace(**take_leaves(_by_point(state), points))


def take_seeds(state: State, seeds: np.ndarray) -> State:
    """Return a sweep's state at some seeds; all seeds share the round."""
    # Keys have an axis of seeds alone; all other parts have points before seeds.
    runs = jax.tree.map(lambda leaf: leaf[:, seeds], _by_point(state))
    return state._replace(key=state.key[seeds], **runs)


def put_points(state: State, some: State, points: np.ndarray) -> State:
    """Return a sweep's state with some points replaced, and the round and keys of ``some``."""
    return some._replace(**put_leaves(_by_point(state), _by_point(some), points))


def join_points(states: Sequence[State]) -> State:
    """Return the states of several groups of points as one, on the host if there are several."""
    if len(states) == 1:
        return states[0]
    # On the host, where a new number of points compiles nothing.
    parts = [jax.device_get(_by_point(state)) for state in states]
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return states[0]._replace(**joined)


def take_leaves(leaves: PyTree, points: np.ndarray) -> PyTree:
    """Return arrays with axes [points, ...] at some points."""
    return jax.tree.map(lambda leaf: leaf[points], leaves)


def put_leaves(leaves: PyTree, some: PyTree, points: np.ndarray) -> PyTree:
    """Return arrays with axes [points, ...] with some points replaced."""
    # Padding repeats the last point; all of its copies have equal values.
    return jax.tree.map(lambda leaf, part: leaf.at[points].set(part), leaves, some)


def _by_point(state: State) -> dict[str, PyTree]:
    names = ("server", "clients", "residuals", "memory")
    return {name: getattr(state, name) for name in names}
