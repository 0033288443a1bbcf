"""Transforms compute in floating point, also of integers.

Steps and strengths are cast to the dtype of the point: in that of integers a step of 0.5 is 0, and
a projection is truncated.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.memo import memoised

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def in_floats(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function so that arrays of integers and booleans arrive as floats.

    So do Python numbers in the first argument, which is a point or a gradient.

    Example:
      >>> in_floats(lambda x: 0.5 * x)(jnp.array([1, 3])).tolist()
      [0.5, 1.5]
    """

    @functools.wraps(function)
    def converted(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        args, kwargs = jax.tree.map(_as_float, (args, kwargs))
        first = jax.tree.map(_as_array, args[:1])
        return function(*first, *args[1:], **kwargs)

    return converted


def transform(factory: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a factory: equal calls return the same object, and its functions use ``in_floats``.

    Args:
      factory: a function that returns a penalty, a mirror map or a manifold, or a function.
    """

    @functools.wraps(factory)
    def made(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return _with_floats(factory(*args, **kwargs))

    return memoised(made)


def _with_floats(made: Any) -> Any:
    if callable(made):
        return in_floats(made)
    functions = {
        name: in_floats(field)
        for name, field in zip(made._fields, made, strict=True)
        if callable(field) and name != "random_point"  # whose key may be an array of integers
    }
    return made._replace(**functions)


def _as_float(leaf: Any) -> Any:
    is_array = isinstance(leaf, jax.Array | np.ndarray | np.generic)
    if is_array and (jnp.issubdtype(leaf.dtype, jnp.integer) or leaf.dtype == bool):
        return leaf.astype(jnp.result_type(float))
    return leaf


def _as_array(leaf: Any) -> Any:
    return jnp.asarray(leaf, float) if isinstance(leaf, int | float) else leaf
