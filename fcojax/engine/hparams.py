"""Hyperparameters: named tuples of numbers, and of schedules over rounds; grids of them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.types import Array, PyTree


class Schedule(NamedTuple):
    """A hyperparameter with one value per round; see ``schedule``."""

    values: Array


def is_schedule(value: Any) -> bool:
    """Return whether a hyperparameter has one value per round."""
    return isinstance(value, Schedule)


def at_round(hparams: PyTree, index: Array | int) -> PyTree:
    """Return the hyperparameters of one round."""
    return jax.tree.map(
        lambda value: value.values[index] if is_schedule(value) else value,
        hparams,
        is_leaf=is_schedule,
    )


def as_arrays(hparams: PyTree) -> PyTree:
    """Return hyperparameters as arrays, so that a new number does not cause a new trace.

    Numbers become floats of the default type, except in fields whose default is an integer.
    """
    # A field whose default is an integer, such as a number of steps, keeps integers.
    defaults, number = type(hparams)._field_defaults, jnp.result_type(float)

    def one(name, value):
        if is_schedule(value):
            return Schedule(one(name, value.values))
        # client_lr=1 becomes the float 1.0; as an integer it would be another program than 0.5.
        if isinstance(value, float) or name in defaults and _is_real(defaults[name]):
            # Numbers of the host stay there: a program takes them along when it is called, where a
            # transfer of each takes 50 us, and `jnp.asarray` compiles a program, which takes 20 ms.
            on_host = isinstance(value, bool | int | float | np.ndarray | np.generic)
            return np.asarray(value, number) if on_host else jnp.asarray(value, number)
        value = jnp.asarray(value)
        return value.astype(number) if jnp.issubdtype(value.dtype, jnp.floating) else value

    # Not Python numbers: these are weakly typed, and as arguments cause another trace than arrays.
    return type(hparams)(*map(one, hparams._fields, hparams))


def _is_real(default: Any) -> bool:
    """Return whether a default consists of floats."""
    return jnp.issubdtype(getattr(default, "dtype", type(default)), jnp.floating)


def num_points(grid: PyTree) -> int:
    """Return the number of points of a grid."""
    return jax.tree.leaves(grid)[0].shape[0]


def take(grid: PyTree, points: Any) -> PyTree:
    """Return one point of a grid for an index, or a grid for a slice or several indices."""
    return jax.tree.map(lambda column: column[points], grid)
