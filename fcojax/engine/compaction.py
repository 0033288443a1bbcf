"""Fewer points of a sweep, once others have finished."""

from collections.abc import Callable

import jax
import numpy as np

from fcojax.engine.state import State


def halved(size: int, needed: int) -> int:
    """Halve ``size``, rounding up, as long as ``needed`` points fit; so few sizes are compiled."""
    while size > needed and -(-size // 2) >= needed:
        size = -(-size // 2)
    return size


def map_runs(function: Callable, state: State, *others: State) -> State:
    """Apply a function to all arrays of a sweep's state with axes [points, seeds]."""
    names = ("server", "clients", "residuals", "memory")
    parts = {
        name: jax.tree.map(function, *(getattr(one, name) for one in (state, *others)))
        for name in names
    }
    # All points share the round and the keys.
    return state._replace(**parts)


def take_points(state: State, points: np.ndarray) -> State:
    """Return a sweep's state at some points."""
    return map_runs(lambda leaf: leaf[points], state)
