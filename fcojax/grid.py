"""Grids of hyperparameters for ``fcojax.sweep``."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fcojax.arguments import shown
from fcojax.engine.hparams import Schedule, as_arrays, is_schedule
from fcojax.types import PyTree


def product(hparams_type: type, **values: Sequence[float]) -> PyTree:
    """Return the grid of all combinations of the given values.

    ``values`` has a list for each field that varies; the last one varies fastest. Other fields keep
    their defaults. The grid is made on the host, and has a leading axis of points.

    Example:
      >>> import fcojax
      >>> hparams_type = fcojax.algorithms.fed_avg.Hparams
      >>> grid = fcojax.grid.product(hparams_type, client_lr=[0.5, 1.0], server_lr=[2.0])
      >>> grid.client_lr.tolist(), grid.server_lr.tolist()
      ([0.5, 1.0], [2.0, 2.0])
    """
    return _grid(hparams_type, list(itertools.product(*_columns(hparams_type, values))))


def zipped(hparams_type: type, **values: Sequence[float]) -> PyTree:
    """Return the grid whose point i has the i-th value of every field, from lists of one length.

    Example:
      >>> import fcojax
      >>> hparams_type = fcojax.algorithms.fed_avg.Hparams
      >>> grid = fcojax.grid.zipped(hparams_type, client_lr=[0.5, 1.0], server_lr=[2, 3])
      >>> grid.client_lr.tolist(), grid.server_lr.tolist()
      ([0.5, 1.0], [2.0, 3.0])
    """
    columns = dict(zip(hparams_type._fields, _columns(hparams_type, values), strict=True))  # pyright: ignore
    num = max(len(columns[name]) for name in values)
    whole = [column if name in values else column * num for name, column in columns.items()]
    return _grid(hparams_type, list(zip(*whole, strict=True)))


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
        as_arrays(hparams_type(*point))
    columns = zip(hparams_type._fields, zip(*points, strict=True), strict=True)  # pyright: ignore
    grid = hparams_type(*(_stacked(*column) for column in columns))
    return jax.device_put(as_arrays(grid, sweeping=True))


def _stacked(name: str, column: tuple) -> Any:
    """Stack the values of all points in one array, or in one schedule."""
    scheduled = {is_schedule(value) for value in column}
    if scheduled == {True}:
        return Schedule(_stacked(name, tuple(value.values for value in column)))
    if True in scheduled:
        raise ValueError(f"{name} mixes schedules and numbers; pass schedules for all points.")
    return np.asarray(column)
