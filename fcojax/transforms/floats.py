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

from fcojax.arguments import shown
from fcojax.memo import memoised

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def in_floats(
    function: Callable[Arguments, Result], no_functions: bool = False
) -> Callable[Arguments, Result]:
    """Decorate a function so that arrays of integers and booleans arrive as floats.

    So do Python numbers in the first argument, which is a point or a gradient, and arrives as
    arrays of JAX.

    Args:
      function: any function.
      no_functions: whether functions in the first argument are refused.

    Example:
      >>> in_floats(lambda x: 0.5 * x)(jnp.array([1, 3])).tolist()
      [0.5, 1.5]
    """

    @functools.wraps(function)
    def converted(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        args, kwargs = jax.tree.map(_as_float, (args, kwargs))
        first = jax.tree.map(functools.partial(_as_array, no_functions=no_functions), args[:1])
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
        name: in_floats(field, no_functions=True)
        for name, field in zip(made._fields, made, strict=True)
        if callable(field) and name != "random_point"  # whose key may be an array of integers
    }
    return made._replace(**functions)


def _as_float(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return leaf
    if jnp.issubdtype(leaf.dtype, jnp.floating) and not isinstance(leaf, np.ma.MaskedArray):
        return leaf if leaf.dtype.isnative else leaf.astype(leaf.dtype.newbyteorder("="))
    if jnp.issubdtype(leaf.dtype, jnp.integer) or leaf.dtype == bool:
        return leaf.astype(jnp.result_type(float))
    kind = "a masked array" if isinstance(leaf, np.ma.MaskedArray) else f"of dtype {leaf.dtype}"
    raise ValueError(f"an array for a transform is {kind}; pass arrays of real numbers.")


def _as_array(leaf: Any, no_functions: bool) -> Any:
    if isinstance(leaf, np.ndarray | np.generic):
        return jnp.asarray(leaf)  # custom_vmap fails at arrays of numpy among the constants of jit
    if isinstance(leaf, int | float):
        return jnp.asarray(leaf, float)
    if isinstance(leaf, jax.Array) or (callable(leaf) and not no_functions):
        return leaf
    raise ValueError(f"the point of a transform holds {shown(leaf)}; pass arrays of real numbers.")
