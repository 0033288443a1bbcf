"""Makers of hyperparameters: schedules over rounds, types with further fields, and grids.

A grid is a named tuple whose fields have a leading axis of points; it is made on the host.
"""

import itertools
import typing
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import field_annotations, shown, validated
from fcojax.engine.hparams import Schedule, as_arrays, is_schedule, require_hparams
from fcojax.types import Count, Positive, PyTree, Real


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
        values = jax.vmap(lambda index: jnp.asarray(values(index)))(jnp.arange(num_rounds))
    values = jnp.asarray(values)
    if values.ndim == 0 or values.shape[0] == 0:
        raise ValueError(f"the schedule has shape {values.shape}; pass a value for each round.")
    return Schedule(values)


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
    annotations = field_annotations(base)
    fields = [(field, annotations.get(field, Real)) for field in (*base._fields, *defaults)]  # pyright: ignore
    known = dict(base._field_defaults) | defaults  # pyright: ignore
    # The functional form of `NamedTuple` takes no defaults, so they are set afterwards, as a class
    # statement sets them.
    both = typing.NamedTuple(name, fields)  # pyright: ignore
    both.__new__.__defaults__ = tuple(known[field] for field, _ in fields if field in known)
    both._field_defaults = known
    # `require_hparams` reads this: an algorithm for the base accepts the extended type too.
    both.extends = (base, *getattr(base, "extends", ()))  # pyright: ignore
    return both


def product(hparams_type: type, **values: Sequence[float]) -> PyTree:
    """Return the grid of all combinations of the given values.

    The last field varies fastest. Fields that are not named keep their defaults.

    Args:
      hparams_type: a type of hyperparameters.
      **values: a list of values for each field that varies.

    Example:
      >>> import fcojax
      >>> hparams_type = fcojax.algorithms.fed_avg.Hparams
      >>> grid = fcojax.grid.product(hparams_type, client_lr=[0.5, 1.0], server_lr=[2.0])
      >>> grid.client_lr.tolist(), grid.server_lr.tolist()
      ([0.5, 1.0], [2.0, 2.0])
    """
    return _grid(hparams_type, list(itertools.product(*_columns(hparams_type, values))))


def zipped(hparams_type: type, **values: Sequence[float]) -> PyTree:
    """Return the grid whose point i has the i-th value of every field.

    Args:
      hparams_type: a type of hyperparameters.
      **values: a list of values for each field that varies, all of the same length.

    Example:
      >>> import fcojax
      >>> hparams_type = fcojax.algorithms.fed_avg.Hparams
      >>> grid = fcojax.grid.zipped(hparams_type, client_lr=[0.5, 1.0], server_lr=[2, 3])
      >>> grid.client_lr.tolist(), grid.server_lr.tolist()
      ([0.5, 1.0], [2.0, 3.0])
    """
    columns = dict(zip(hparams_type._fields, _columns(hparams_type, values), strict=True))  # pyright: ignore
    lengths = {name: len(columns[name]) for name in values}
    if len(set(lengths.values())) != 1:
        raise ValueError(
            f"the fields have {lengths} values; give every field the same number, and at least "
            "one field."
        )
    num = max(lengths.values())
    whole = [column if name in values else column * num for name, column in columns.items()]
    return _grid(hparams_type, list(zip(*whole, strict=True)))


@validated
def log_spaced(low: Positive, high: Positive, num: Count) -> list[float]:
    """Return values from ``low`` to ``high``, including both, with equal ratios between them.

    Args:
      low: the first value.
      high: the last value.
      num: the number of values.

    Example:
      >>> import fcojax
      >>> fcojax.grid.log_spaced(0.01, 1.0, 3)
      [0.01, 0.1, 1.0]
    """
    if low > high:
        raise ValueError(f"low is {low}, above high = {high}; pass low <= high.")
    # Seven digits, what float32 holds: 0.1 in tables and file names, not 0.10000000000000002.
    return [float(f"{value:.7g}") for value in np.geomspace(low, high, num)]


def _columns(hparams_type: type, values: dict[str, Any]) -> list[list]:
    """Return one list per field, in order: its values, or its default alone."""
    lists = {}
    for name, column in values.items():
        # Both are sequences to Python: a string of letters, a schedule of its one field.
        lists[name] = [] if isinstance(column, str) or is_schedule(column) else list(column)
        if not lists[name]:
            raise ValueError(
                f"{name} is {shown(column)}; pass a list of values, as in {name}=[0.1, 1.0]."
            )
    # The constructor refuses unknown fields and missing ones.
    first = hparams_type(**{name: column[0] for name, column in lists.items()})
    return [lists.get(name, [value]) for name, value in zip(first._fields, first, strict=True)]


def _grid(hparams_type: type, points: list[tuple]) -> PyTree:
    # Point by point, so that the message names a value and not a column.
    for point in points:
        require_hparams(hparams_type(*point))
    columns = zip(hparams_type._fields, zip(*points, strict=True), strict=True)  # pyright: ignore
    return jax.device_put(as_arrays(hparams_type(*(_stacked(*column) for column in columns))))


def _stacked(name: str, column: tuple) -> Any:
    """Stack the values of all points in one array, or in one schedule."""
    scheduled = {is_schedule(value) for value in column}
    if scheduled == {True}:
        return Schedule(_stacked(name, tuple(value.values for value in column)))
    if True in scheduled:
        raise ValueError(f"{name} mixes schedules and numbers; pass schedules for all points.")
    shapes = {np.shape(value) for value in column}
    if len(shapes) > 1:
        raise ValueError(f"{name} has values of shapes {sorted(shapes)}; pass values of one shape.")
    return np.asarray(column)
