"""Hyperparameters: scalars by name, schedules over rounds, and types that carry a few more."""

import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax.algorithms.work import checked_count
from fcojax.problems.fields import shown
from fcojax.types import Array, PyTree


class Schedule(NamedTuple):
    """A hyperparameter with a value of its own for each round; see ``schedule``."""

    values: Array


def schedule(values: Any, num_rounds: int | None = None) -> Schedule:
    """A hyperparameter that changes from round to round, in place of a number.

    Args:
      values: one for each round; after the last the last is kept. Or a function of the round, as
        optax makes them, with ``num_rounds``.
      num_rounds: how many rounds a function is evaluated for.

    Example:
      >>> import optax
      >>> schedule(optax.linear_schedule(1.0, 0.0, 4), num_rounds=4).values.tolist()
      [1.0, 0.75, 0.5, 0.25]
    """
    if callable(values):
        if num_rounds is None:
            raise ValueError("a schedule made from a function needs num_rounds as well; pass it.")
        values = _tabulated(values, checked_count("num_rounds", num_rounds))
    elif num_rounds is not None:
        raise ValueError(
            "num_rounds goes with a function; pass an array alone, which has a length."
        )
    if is_schedule(values):
        raise ValueError(f"{shown(values)} is a schedule already; pass it as it is.")
    values = _numbers(values)
    if values.ndim == 0 or values.shape[0] == 0:
        raise ValueError(f"the schedule has shape {values.shape}; pass a value for each round.")
    return Schedule(values)


def _tabulated(function: Callable, num_rounds: int) -> Array:
    """What a function says of each round."""

    def one(index):
        value = function(index)
        if not isinstance(value, jax.Array | np.ndarray | np.generic | float | int):
            raise ValueError(f"the schedule's function returned {shown(value)}; return a number.")
        return jnp.asarray(value)

    return jax.vmap(one)(jnp.arange(num_rounds))


def _numbers(values: Any) -> Array:
    if isinstance(values, Tracer):
        return values
    try:
        found = values if isinstance(values, jax.Array) else np.asarray(values)
    except ValueError:
        found = np.asarray(None)  # ragged
    if not jnp.issubdtype(found.dtype, jnp.number) and found.dtype != bool:
        raise ValueError(f"the schedule is {shown(values)}; pass numbers, one for each round.")
    return jnp.asarray(found)


def extended(base: type, name: str, **defaults: Any) -> type:
    """The hyperparameters of ``base`` with more fields behind them, in one flat named tuple.

    For what wraps an algorithm and has numbers of its own: they sweep, and stand in rows, as the
    algorithm's do, and the algorithm reads its own by name without noticing.

    Example:
      >>> from fcojax.algorithms import fed_avg
      >>> Clipped = extended(fed_avg.Hparams, "Clipped", clip_norm=1.0)
      >>> Clipped(client_lr=0.1)
      Clipped(client_lr=0.1, server_lr=1.0, clip_norm=1.0)
    """
    _check_extension(base, name, defaults)
    fields = [(field, Any) for field in (*base._fields, *defaults)]  # pyright: ignore
    known = dict(base._field_defaults) | defaults  # pyright: ignore
    both = typing.NamedTuple(name, fields)  # pyright: ignore
    both.__new__.__defaults__ = tuple(known[field] for field, _ in fields if field in known)
    both._field_defaults = known
    both.extends = (base, *getattr(base, "extends", ()))  # pyright: ignore
    return both


def _check_extension(base: Any, name: Any, defaults: dict[str, Any]) -> None:
    checked_type(base)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f'name is {shown(name)}; pass a name for the type, as in "Clipped".')
    for field in defaults:
        if field in base._fields:
            raise ValueError(f"{base.__name__} has a field {field} already; choose another name.")
        if field.startswith("_"):
            raise ValueError(
                f"{name} has a field {field}; choose a name that starts with a letter."
            )


def checked_type(hparams_type: Any) -> Any:
    """The type itself, if it is one of hyperparameters."""
    if isinstance(hparams_type, type) and hasattr(hparams_type, "_fields"):
        return hparams_type
    inside = getattr(hparams_type, "Hparams", None)
    pass_what = (
        f"{hparams_type.__name__}.Hparams"
        if isinstance(inside, type)
        else "the type of an algorithm's hyperparameters, as in fed_avg.Hparams"
    )
    raise ValueError(f"hparams_type is {shown(hparams_type)}; pass {pass_what}.")


def is_schedule(value: Any) -> bool:
    """Whether a hyperparameter has a value of its own for each round."""
    return isinstance(value, Schedule)


def at_round(hparams: PyTree, index: Array | int) -> PyTree:
    """The hyperparameters of one round."""
    return jax.tree.map(
        lambda value: value.values[index] if is_schedule(value) else value,
        hparams,
        is_leaf=is_schedule,
    )


def as_arrays(hparams: PyTree) -> PyTree:
    """Hyperparameters as arrays, so that no number is a new trace.

    Numbers become floats of the default type; a field whose default is a whole number keeps whole
    numbers.
    """
    if not hasattr(type(hparams), "_field_defaults"):
        raise ValueError(f"hparams is {shown(hparams)}; pass a named tuple of numbers.")
    defaults = type(hparams)._field_defaults

    def one(name, value):
        if is_schedule(value):
            return Schedule(one(name, value.values))
        if name in defaults and _is_real(defaults[name]):
            return jnp.asarray(value, jnp.result_type(float))
        value = jnp.asarray(value)
        if jnp.issubdtype(value.dtype, jnp.floating):
            return value.astype(jnp.result_type(float))
        return value

    return type(hparams)(*map(one, hparams._fields, hparams))


def _is_real(default: Any) -> bool:
    """Whether a default is made of floats, one or several."""
    return jnp.issubdtype(getattr(default, "dtype", type(default)), jnp.floating)
