"""Inspection of jaxprs: their equations and inner jaxprs, their work, and what depends on what.

Functions are any that JAX can trace, and arguments are arrays or ``jax.ShapeDtypeStruct``.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.interpreters import partial_eval


def inner_programs(equation: Any) -> list[Any]:
    """Return the jaxprs inside an equation: bodies of loops, branches and calls."""
    values = equation.params.values()
    each = [x for value in values for x in (value if isinstance(value, tuple | list) else [value])]
    jaxprs = [getattr(value, "jaxpr", value) for value in each]
    return [value for value in jaxprs if hasattr(value, "eqns")]


def equations(program: Any) -> Iterator[Any]:
    """Yield the equations of a jaxpr, and those of all jaxprs inside of it."""
    for equation in program.eqns:
        yield equation
        for inner in inner_programs(equation):
            yield from equations(inner)


def bytes_of_results(function: Callable, *args: Any) -> list[int]:
    """Return the bytes of each array that ``function`` computes, counting loop bodies once.

    Example:
      >>> import jax.numpy as jnp
      >>> bytes_of_results(lambda x: jnp.sum(2 * x), jnp.zeros(10, jnp.float32))
      [40, 4]
    """
    return [
        math.prod(result.aval.shape) * result.aval.dtype.itemsize
        for equation in equations(jax.make_jaxpr(function)(*args).jaxpr)
        for result in equation.outvars
    ]


def num_equations(function: Callable, *args: Any) -> int:
    """Return the number of equations that ``function`` evaluates, with its scans multiplied out.

    Example:
      >>> import jax.numpy as jnp
      >>> powers = lambda x: jax.lax.scan(lambda x, _: (2 * x, None), x, length=10)[0]
      >>> num_equations(powers, 1.0)
      11
    """
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def depend_on_first(function: Callable, first: Any, *others: Any) -> list[bool]:
    """Return for each array that a function returns whether it may depend on its first argument.

    Example:
      >>> import jax.numpy as jnp
      >>> depend_on_first(lambda x, y: (x + y, 2 * y), jnp.zeros(()), jnp.zeros(()))
      [True, False]
    """
    program = jax.make_jaxpr(function)(first, *others).jaxpr
    size, count = len(jax.tree.leaves(first)), len(program.outvars)
    found = []
    for index in range(count):
        wanted = [other == index for other in range(count)]
        _, used = partial_eval.dce_jaxpr(program, wanted)  # also inside loops
        found.append(any(used[:size]))
    return found


def _count(program: Any) -> int:
    inside = [
        equation.params.get("length", 1) * _count(inner)
        for equation in program.eqns
        for inner in inner_programs(equation)
    ]
    return len(program.eqns) + sum(inside)
