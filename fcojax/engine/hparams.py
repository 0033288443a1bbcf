"""Hyperparameters: named tuples of numbers, schedules over rounds, grids, and extended types."""

import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax import tree
from fcojax.arguments import field_annotations, shown, validated
from fcojax.types import Array, Count, PyTree, Real


class Schedule(NamedTuple):
    """A hyperparameter with one value per round; see ``schedule``."""

    values: Array


@validated
def schedule(values: Any, num_rounds: Count | None = None) -> Schedule:
    """Make a hyperparameter that changes from round to round, in place of a number.

    Args:
      values: one value for each round, at least as many as rounds are run; or a function of the
        round, such as an optax schedule, with ``num_rounds``.
      num_rounds: number of rounds for which a function is evaluated.

    Example:
      >>> import optax
      >>> schedule(optax.linear_schedule(1.0, 0.0, 4), num_rounds=4).values.tolist()
      [1.0, 0.75, 0.5, 0.25]
    """
    if callable(values) != (num_rounds is not None):
        raise ValueError(
            f"values is {shown(values)} and num_rounds is {num_rounds}; pass a function and "
            f"num_rounds, or only an array."
        )
    if num_rounds is not None:
        values = _tabulated(values, num_rounds)
    if is_schedule(values):
        raise ValueError(f"{shown(values)} is a schedule already; pass it without schedule().")
    values = _numbers(values)
    if values.ndim == 0 or values.shape[0] == 0:
        raise ValueError(f"the schedule has shape {values.shape}; pass a value for each round.")
    return Schedule(values)


def _tabulated(function: Callable, num_rounds: int) -> Array:
    """Evaluate a function at each round."""
    return jax.vmap(lambda index: jnp.asarray(function(index)))(jnp.arange(num_rounds))


def _numbers(values: Any) -> Array:
    # A traced schedule has a shape to check, and no numbers yet.
    if isinstance(values, Tracer):
        return values
    try:
        found = values if isinstance(values, jax.Array) else np.asarray(values)
    except ValueError:
        found = np.asarray(None)  # ragged
    if not jnp.issubdtype(found.dtype, jnp.number) and found.dtype != bool:
        raise ValueError(f"the schedule is {shown(values)}; pass numbers, one for each round.")
    return jnp.asarray(found)


@validated
def extended(base: type, name: str, **defaults: Any) -> type:
    """Return the hyperparameter type ``base`` with additional fields, as one flat named tuple.

    Use it in wrappers of an algorithm that need more numbers: they can be swept like the
    algorithm's own, and the algorithm still reads its fields by name.

    Args:
      base: a type of hyperparameters.
      name: name of the new type.
      **defaults: the additional fields with their defaults.

    Example:
      >>> from fcojax.algorithms import fed_avg
      >>> Clipped = extended(fed_avg.Hparams, "Clipped", clip_norm=1.0)
      >>> Clipped(client_lr=0.1)
      Clipped(client_lr=0.1, server_lr=1.0, clip_norm=1.0)
    """
    checked_type(base)
    annotations = field_annotations(base)
    fields = [(field, annotations.get(field, Real)) for field in (*base._fields, *defaults)]  # pyright: ignore
    known = dict(base._field_defaults) | defaults  # pyright: ignore
    # The functional form of `NamedTuple` takes no defaults, so they are set afterwards, as a class
    # statement sets them.
    both = typing.NamedTuple(name, fields)  # pyright: ignore
    both.__new__.__defaults__ = tuple(known[field] for field, _ in fields if field in known)
    both._field_defaults = known
    # `require_type` reads this: an algorithm for the base accepts the extended type too.
    both.extends = (base, *getattr(base, "extends", ()))  # pyright: ignore
    return both


def checked_type(hparams_type: Any) -> Any:
    """Return a type of hyperparameters; raise ``ValueError`` for anything else."""
    if isinstance(hparams_type, type) and hasattr(hparams_type, "_fields"):
        return hparams_type
    inside = getattr(hparams_type, "Hparams", None)
    needed = (
        f"{hparams_type.__name__}.Hparams"
        if isinstance(inside, type)
        else "the type of an algorithm's hyperparameters, as in fed_avg.Hparams"
    )
    raise ValueError(f"hparams_type is {shown(hparams_type)}; pass {needed}.")


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
    if not hasattr(type(hparams), "_field_defaults"):
        raise ValueError(f"hparams is {shown(hparams)}; pass a named tuple of numbers.")
    # A field whose default is an integer, such as a number of steps, keeps integers.
    defaults = type(hparams)._field_defaults

    def one(name, value):
        if is_schedule(value):
            return Schedule(one(name, value.values))
        # client_lr=1 becomes the float 1.0; as an integer it would be another program than 0.5.
        if name in defaults and _is_real(defaults[name]):
            return tree.as_array(value, jnp.result_type(float))
        # Converted on the host: `jnp.asarray` of a number compiles a program, which takes 20 ms.
        value = tree.as_array(value, float) if isinstance(value, float) else jnp.asarray(value)
        if jnp.issubdtype(value.dtype, jnp.floating):
            return value.astype(jnp.result_type(float))
        return value

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


def number(hparams: Any, given: Any) -> Any:
    """Return a number, or the value of a function of the hyperparameters, which can be swept."""
    return given(hparams) if callable(given) else given
