"""Grids of hyperparameters: tuples of numbers with one leading axis of points, made on the host."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fcojax.engine.check import check_hparams
from fcojax.engine.hparams import as_arrays
from fcojax.types import PyTree


def product(hparams_type: type, **values: Sequence[float]) -> PyTree:
    """All combinations of the given values.

    The last field varies fastest. Fields that are not named keep their defaults.

    Example:
      >>> import fcojax
      >>> grid = product(fcojax.algorithms.fed_avg.Hparams, client_lr=[0.1, 1.0], server_lr=[2.0])
      >>> grid.client_lr.tolist(), grid.server_lr.tolist()
      ([0.1, 1.0], [2.0, 2.0])
    """
    lists = [list(column) for column in _with_defaults(hparams_type, values)]
    return _grid(hparams_type, list(itertools.product(*lists)))


def zipped(hparams_type: type, **values: Sequence[float]) -> PyTree:
    """The first values of all fields together, then the second ones, and so on.

    Example:
      >>> import fcojax
      >>> grid = zipped(fcojax.algorithms.fed_avg.Hparams, client_lr=[0.1, 1.0], server_lr=[2, 3])
      >>> grid.client_lr.tolist(), grid.server_lr.tolist()
      ([0.1, 1.0], [2.0, 3.0])
    """
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"the fields have {lengths} values; give every field the same number.")
    (num,) = set(lengths.values())
    columns = [
        column if len(column) == num else list(column) * num
        for column in map(list, _with_defaults(hparams_type, values))
    ]
    return _grid(hparams_type, list(zip(*columns, strict=True)))


def log_spaced(low: float, high: float, num: int) -> list[float]:
    """``num`` values from ``low`` to ``high``, both included, with equal ratios between them.

    Example:
      >>> log_spaced(0.01, 1.0, 3)
      [0.01, 0.1, 1.0]
    """
    if not (0 < low <= high and num >= 1):
        raise ValueError(f"low is {low}, high {high}, num {num}; pass 0 < low <= high, num >= 1.")
    return [float(f"{value:.7g}") for value in np.geomspace(low, high, num)]


def random_draws(
    hparams_type: type, num: int, seed: int, **ranges: tuple[float, float] | float
) -> PyTree:
    """``num`` random points, each field log-uniform between the two ends of its range.

    A field given as one number has that value everywhere; fields that are not named keep their
    defaults.

    Example:
      >>> import fcojax
      >>> grid = random_draws(fcojax.algorithms.fed_avg.Hparams, 5, seed=0, client_lr=(1e-3, 1.0))
      >>> grid.client_lr.shape, bool((grid.client_lr > 1e-3).all())
      ((5,), True)
    """
    rng = np.random.default_rng(seed)
    columns = []
    for name, ends in zip(
        hparams_type._fields,  # pyright: ignore[reportAttributeAccessIssue]
        _with_defaults(hparams_type, {name: np.ravel(ends) for name, ends in ranges.items()}),
        strict=True,
    ):
        low, high = (ends[0], ends[-1])
        if len(ends) > 2 or not (0 < low <= high or low == high):
            raise ValueError(
                f"{name} has range {list(ends)}; pass a number, or two with 0 < low <= high."
            )
        if low == high:
            columns.append([float(low)] * num)
        else:
            columns.append(np.exp(rng.uniform(np.log(low), np.log(high), num)).tolist())
    return _grid(hparams_type, list(zip(*columns, strict=True)))


def num_points(grid: PyTree) -> int:
    """Points of a grid."""
    return jax.tree.leaves(grid)[0].shape[0]


def take(grid: PyTree, points: Any) -> PyTree:
    """Some points of a grid: one for a number, a smaller grid for a slice or several numbers."""
    return jax.tree.map(lambda column: column[points], grid)


def _with_defaults(hparams_type: type, values: dict[str, Any]) -> list[Any]:
    fields = hparams_type._fields  # pyright: ignore[reportAttributeAccessIssue]
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise ValueError(
            f"{hparams_type.__name__} has no field {unknown[0]}; its fields are {list(fields)}."
        )
    defaults = hparams_type._field_defaults  # pyright: ignore[reportAttributeAccessIssue]
    missing = [field for field in fields if field not in values and field not in defaults]
    if missing:
        raise ValueError(
            f"{hparams_type.__name__} needs {missing[0]}, which has no default; pass values for it."
        )
    return [values[field] if field in values else [defaults[field]] for field in fields]


def _grid(hparams_type: type, points: list[tuple]) -> PyTree:
    for point in points:
        check_hparams(hparams_type(*point))
    return as_arrays(hparams_type(*map(np.asarray, zip(*points, strict=True))))
