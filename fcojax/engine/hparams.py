"""Hyperparameters: named tuples of numbers, and of schedules over rounds."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax.arguments import checked_value, field_annotations, numbers_of, shown
from fcojax.types import Array, PyTree, Real


class Schedule(NamedTuple):
    """A hyperparameter with one value per round; see ``fcojax.schedule``."""

    values: Array


def is_schedule(value: Any) -> bool:
    """Return whether a hyperparameter has one value per round."""
    return isinstance(value, Schedule)


def at_round(hparams: PyTree, index: Array | int) -> PyTree:
    """Return the hyperparameters of one round."""
    return type(hparams)(*(v.values[index] if is_schedule(v) else v for v in hparams))


def num_points(grid: PyTree) -> int:
    """Return the number of points of a grid."""
    return jax.tree.leaves(grid)[0].shape[0]


def take(grid: PyTree, points: Any) -> PyTree:
    """Return one point of a grid for an index, or a grid for a slice or several indices."""
    return jax.tree.map(lambda column: column[points], grid)


def as_arrays(
    hparams: PyTree, sweeping: bool = False, last: int | None = None, expected: Any = None
) -> PyTree:
    """Return hyperparameters as arrays, so that a new number does not cause a new trace.

    Numbers become floats of the default type, except in fields whose default is an integer. Raise
    ``ValueError`` unless they fit their annotations and have the right shapes: those of a grid if
    ``sweeping``. Schedules need values for ``last`` rounds, and the algorithm takes the type
    ``expected``, if these are known.
    """
    given = type(hparams)
    if not hasattr(given, "_fields"):
        raise ValueError(f"hparams is {shown(hparams)}; pass a named tuple of numbers.")
    # A wrapper may extend the type; the algorithm inside reads its own fields by name.
    known = expected in (None, tuple, given, *getattr(given, "extends", ()))
    if not known and expected._fields != given._fields:
        raise ValueError(
            f"hparams is a {given.__name__}({', '.join(given._fields)}), but this algorithm takes "
            f"{expected.__name__}({', '.join(expected._fields)}); pass its own factory's Hparams."
        )
    annotations, lengths = field_annotations(given), {}
    for name, value in zip(hparams._fields, hparams, strict=True):
        scheduled = is_schedule(value)
        # All values of a schedule or grid are checked, not only the first.
        values = value.values if scheduled else value
        kind = annotations.get(name, Real)
        checked_value(name, values, Real if numbers_of(kind) is None else kind)
        # numpy's int64 beyond int32 would wrap silently.
        if not isinstance(values, Tracer | jax.ShapeDtypeStruct):
            array, limits = np.asarray(values), np.iinfo(jax.dtypes.canonicalize_dtype(int))
            if array.dtype.kind in "iu" and ((array < limits.min) | (array > limits.max)).any():
                raise ValueError(f"{name} is {shown(values)}; pass numbers of {limits.dtype}.")
        shape = np.shape(values)
        if sweeping:
            if len(shape) < 1 + scheduled:
                raise ValueError(
                    f"{name} has shape {shape}, but a sweep takes a grid with one value for each "
                    "point, or schedules of shape [points, rounds]; make it with fcojax.grid."
                )
            lengths[name], shape = shape[0], shape[1:]
        if scheduled:
            # JAX clamps an index beyond the end: later rounds would silently repeat the last value.
            if last is not None and shape[0] < last:
                raise ValueError(
                    f"the schedule of {name} has {shape[0]} values; pass one for each of the "
                    f"{last} rounds."
                )
            shape = shape[1:]
        default = given._field_defaults.get(name)
        needed = shape if default is None else np.shape(default)
        # A rate of shape [3] would broadcast against a model of three entries, and run.
        if shape != needed:
            grid = "" if sweeping else ", a grid goes to fcojax.sweep"
            raise ValueError(
                f"{name} has shape {shape} where {needed} is needed; pass one value{grid}, and one "
                "value for each round as fcojax.schedule(values)."
            )
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(
            f"the fields of the grid have {lengths} points; give all the same number, at least one."
        )
    # Not Python numbers: these are weakly typed, and as arguments cause another trace than arrays.
    return given(*(_as_array(*field, given) for field in zip(given._fields, hparams, strict=True)))


def _as_array(name: str, value: Any, hparams_type: Any) -> Any:
    """Return the value of a field as an array, or as a schedule of arrays."""
    if is_schedule(value):
        return Schedule(_as_array(name, value.values, hparams_type))
    # A field whose default is an integer, such as a number of steps, keeps integers.
    default = hparams_type._field_defaults.get(name, 0)
    number = jax.dtypes.canonicalize_dtype(float)
    # client_lr=1 becomes the float 1.0; as an integer it would be another program than 0.5.
    real = jnp.issubdtype(getattr(default, "dtype", type(default)), jnp.floating)
    if real or isinstance(value, float):
        # Numbers of the host stay there: a program takes them along when it is called, where a
        # transfer of each takes 50 us, and `jnp.asarray` compiles a program, which takes 20 ms.
        on_host = isinstance(value, bool | int | float | np.ndarray | np.generic)
        return np.asarray(value, number) if on_host else jnp.asarray(value, number)
    value = jnp.asarray(value)
    return value.astype(number) if jnp.issubdtype(value.dtype, jnp.floating) else value
