"""Inspection of jaxprs: their equations and inner jaxprs, their work, the largest intermediate."""

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import partial_eval

# XLA runs these inside loops on a CPU up to a hundred times slower than ``fcojax.xla.convolution``.
SLOW_IN_LOOPS = frozenset(["conv_general_dilated", "reduce_window_max"])


def inner_programs(equation: Any) -> list[Any]:
    """Return the jaxprs inside an equation: bodies of loops, branches and calls."""
    values = [entry for value in equation.params.values() for entry in _as_list(value)]
    jaxprs = [getattr(value, "jaxpr", value) for value in values]
    return [value for value in jaxprs if hasattr(value, "eqns")]


def equations(program: Any) -> Iterator[Any]:
    """Yield the equations of a jaxpr, and those of all jaxprs inside of it."""
    for equation in program.eqns:
        yield equation
        for inner in inner_programs(equation):
            yield from equations(inner)


def fast_call(function: Callable, *args: Any) -> Any:
    """Return ``function(*args)``, computed in the form that is fast inside loops.

    The function is traced one extra time. If it has a convolution or a max pooling, also inside
    other functions, it is passed to ``fcojax.xla.rewriting.fast_inside_loops``; otherwise it is
    called unchanged.

    Args:
      function: any function, such as a loss.
      *args: its arguments.

    Example:
      >>> import jax.numpy as jnp
      >>> smooth = lambda x: jnp.convolve(x, jnp.ones(3), mode="valid")
      >>> x = jnp.arange(5.0)
      >>> fast_call(smooth, x).tolist()
      [3.0, 6.0, 9.0]
      >>> "rhs_dilation" in str(jax.make_jaxpr(lambda x: fast_call(smooth, x))(x))
      False
    """
    leaves, structure = jax.tree.flatten(args)
    if not all(map(core.valid_jaxtype, leaves)):
        return function(*args)

    def arrays(*leaves):
        results = jax.tree.leaves(function(*jax.tree.unflatten(structure, leaves)))
        # Callers refuse entries that are not arrays, with a better message.
        return list(filter(core.valid_jaxtype, results))

    program = jax.make_jaxpr(arrays)(*leaves).jaxpr
    if any(equation.primitive.name in SLOW_IN_LOOPS for equation in equations(program)):
        # Imported here, because most runs have no convolution.
        function = importlib.import_module("fcojax.xla.rewriting").fast_inside_loops(function)
    return function(*args)


def largest_result(function: Callable, *args: Any) -> int:
    """Return the bytes of the largest array that ``function`` computes.

    Args:
      function: any function that JAX can trace.
      *args: its arguments; arrays or ``jax.ShapeDtypeStruct``.

    Example:
      >>> import jax.numpy as jnp
      >>> largest_result(lambda x: jnp.sum(jnp.outer(x, x)), jnp.zeros(10, jnp.float32))
      400
    """
    return max(_sizes(function, *args), default=0)


def bytes_of_results(function: Callable, *args: Any) -> int:
    """Return the bytes of all arrays that ``function`` computes, counting loop bodies once.

    Args:
      function: any function that JAX can trace.
      *args: its arguments; arrays or ``jax.ShapeDtypeStruct``.

    Example:
      >>> import jax.numpy as jnp
      >>> bytes_of_results(lambda x: jnp.sum(2 * x), jnp.zeros(10, jnp.float32))
      44
    """
    return sum(_sizes(function, *args))


def num_equations(function: Callable, *args: Any) -> int:
    """Return the number of equations that ``function`` evaluates, with its scans multiplied out.

    Args:
      function: any function that JAX can trace.
      *args: its arguments; arrays or ``jax.ShapeDtypeStruct``.

    Example:
      >>> import jax.numpy as jnp
      >>> powers = lambda x: jax.lax.scan(lambda x, _: (2 * x, None), x, length=10)[0]
      >>> num_equations(powers, 1.0)
      11
    """
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def depend_on_first(function: Callable, first: Any, *others: Any) -> list[bool]:
    """Return for each array that a function returns whether it may depend on its first argument.

    Args:
      function: any function that JAX can trace.
      first: the first argument, a pytree of arrays or of their shapes.
      *others: the other arguments.

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


def _sizes(function: Callable, *args: Any) -> list[int]:
    """Return the bytes of each array that a function computes, counting loop bodies once."""
    return [
        math.prod(result.aval.shape) * result.aval.dtype.itemsize
        for equation in equations(jax.make_jaxpr(function)(*args).jaxpr)
        for result in equation.outvars
    ]


def _count(program: Any) -> int:
    inside = [
        equation.params.get("length", 1) * _count(inner)
        for equation in program.eqns
        for inner in inner_programs(equation)
    ]
    return len(program.eqns) + sum(inside)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]
