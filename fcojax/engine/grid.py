"""Makers of hyperparameters: schedules over rounds, types with further fields, and grids.

A grid is a named tuple whose fields have a leading axis of points; it is made on the host.
"""

import itertools
import math
import typing
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import field_annotations, shown, validated
from fcojax.engine.hparams import Schedule, as_arrays, is_schedule
from fcojax.engine.validation import require_hparams
from fcojax.types import Array, Count, Positive, PyTree, Real, Seed


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
    values = jnp.asarray(values)
    if values.ndim == 0 or values.shape[0] == 0:
        raise ValueError(f"the schedule has shape {values.shape}; pass a value for each round.")
    return Schedule(values)


def _tabulated(function: Callable, num_rounds: int) -> Array:
    """Evaluate a function at each round."""
    return jax.vmap(lambda index: jnp.asarray(function(index)))(jnp.arange(num_rounds))


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
    # `require_type` reads this: an algorithm for the base accepts the extended type too.
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
    columns = _with_defaults(hparams_type, _as_lists(values))
    return _grid(hparams_type, list(itertools.product(*columns)))


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
    lists = _as_lists(values)
    lengths = {name: len(column) for name, column in lists.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(
            f"the fields have {lengths} values; give every field the same number, and at least "
            "one field."
        )
    (num,) = set(lengths.values())
    columns = [
        column if len(column) == num else list(column) * num
        for column in _with_defaults(hparams_type, lists)
    ]
    return _grid(hparams_type, list(zip(*columns, strict=True)))


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


@validated
def random_draws(
    hparams_type: type, num: Count, seed: Seed, **ranges: tuple[float, float] | float
) -> PyTree:
    """Return a grid of random points, each field log-uniform in its range.

    Args:
      hparams_type: a type of hyperparameters.
      num: number of points.
      seed: the seed of numpy's generator.
      **ranges: the two ends of each field's range, or one number for a constant field. Fields that
        are not named keep their defaults.

    Example:
      >>> import fcojax
      >>> hparams_type = fcojax.algorithms.fed_avg.Hparams
      >>> grid = fcojax.grid.random_draws(hparams_type, 5, seed=0, client_lr=(1e-3, 1.0))
      >>> grid.client_lr.shape, bool((grid.client_lr > 1e-3).all())
      ((5,), True)
    """
    # numpy draws the same numbers on every platform.
    rng = np.random.default_rng(seed)
    ends = _with_defaults(
        hparams_type, {name: _ends(name, given) for name, given in ranges.items()}
    )
    columns = []
    for low, *high in ends:
        if not high:
            columns.append([low] * num)
        else:
            # Log-uniform: a value between 0.001 and 0.01 is as likely as one between 0.1 and 1.
            columns.append(np.exp(rng.uniform(np.log(low), np.log(high[0]), num)).tolist())
    return _grid(hparams_type, list(zip(*columns, strict=True)))


def _ends(name: str, given: Any) -> list:
    """Return the two ends of a range, or one number."""
    low, high = ends = list(given) if np.ndim(given) else [given, given]
    if not (0 < low <= high < math.inf or low == high):
        raise ValueError(
            f"{name} has range {shown(given)}; pass a number, or two with 0 < low <= high."
        )
    return [low] if low == high else ends


def _as_lists(values: dict[str, Any]) -> dict[str, list]:
    """Return the values of each field as a list."""
    lists = {}
    for name, column in values.items():
        # Both are sequences to Python: a string of letters, a schedule of its one field.
        lists[name] = [] if isinstance(column, str) or is_schedule(column) else list(column)
        if not lists[name]:
            raise ValueError(
                f"{name} is {shown(column)}; pass a list of values, as in {name}=[0.1, 1.0]."
            )
    return lists


def _with_defaults(hparams_type: type, values: dict[str, list]) -> list[list]:
    """Return one list per field, in order: its values, or its default alone."""
    fields = hparams_type._fields  # pyright: ignore[reportAttributeAccessIssue]
    # The constructor refuses unknown fields and missing ones.
    first = hparams_type(**{name: column[0] for name, column in values.items()})
    return [values.get(field, [getattr(first, field)]) for field in fields]


def _grid(hparams_type: type, points: list[tuple]) -> PyTree:
    # Point by point, so that the message names a value and not a column.
    for point in points:
        require_hparams(hparams_type(*point))
    columns = zip(*points, strict=True)
    names = hparams_type._fields  # pyright: ignore[reportAttributeAccessIssue]
    return jax.device_put(as_arrays(hparams_type(*map(_stacked, names, columns))))


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
