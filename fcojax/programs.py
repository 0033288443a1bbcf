"""Looks into traced programs: the programs within an equation, and the largest array on the way."""

import math
from collections.abc import Callable
from typing import Any

import jax


def inner_programs(equation: Any) -> list[Any]:
    """The programs that an equation of a traced program runs: bodies of loops, branches, calls."""
    values = [one for value in equation.params.values() for one in _as_list(value)]
    open_ones = [getattr(value, "jaxpr", value) for value in values]
    return [value for value in open_ones if hasattr(value, "eqns")]


def largest_result(function: Callable, *args: Any) -> int:
    """Bytes of the largest array that ``function`` computes; shapes are enough for arguments.

    Example:
      >>> import jax.numpy as jnp
      >>> largest_result(lambda x: jnp.sum(jnp.outer(x, x)), jnp.zeros(10, jnp.float32))
      400
    """
    return _largest(jax.make_jaxpr(function)(*args).jaxpr)


def _largest(program: Any) -> int:
    sizes = [
        math.prod(result.aval.shape) * result.aval.dtype.itemsize
        for equation in program.eqns
        for result in equation.outvars
    ]
    inside = [_largest(inner) for equation in program.eqns for inner in inner_programs(equation)]
    return max(sizes + inside, default=0)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]
