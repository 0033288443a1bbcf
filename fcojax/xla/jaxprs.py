"""Jaxprs: their equations, what depends on what, and forms that are fast inside loops.

Layers of Flax, Haiku, Equinox or plain JAX call ``jax.lax``, whose convolutions XLA runs slowly
inside loops on a CPU. ``fast_inside_loops`` traces a function, and replaces such equations of its
jaxpr by the ``FORMS`` of their primitive, also inside of jit, loops, branches, checkpoints and
functions with derivatives of their own. Derivatives are those of the new forms.

Functions are any that JAX can trace, and arguments are arrays or ``jax.ShapeDtypeStruct``.
"""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import jax
from jax.core import Tracer
from jax.extend import core
from jax.interpreters import partial_eval

from fcojax.types import Arguments, Result
from fcojax.xla.loops import REWRITES, inner_programs

# For a primitive a function of an equation, which returns what computes it in another form, or
# None. `fcojax.xla.convolution` adds those of convolutions and max poolings, `linalg` the others.
FORMS: dict[Any, Callable[[Any], Callable | None]] = {}
_rewrites = jax.make_user_context(True)  # whether slow operations are replaced


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


def as_written() -> AbstractContextManager:
    """Return a context in which no operation of a loss or an observer is replaced.

    Example:
      >>> import fcojax
      >>> with as_written():
      ...     pass  # fcojax.run(...)
    """
    return _rewrites(False)


def fast_inside_loops(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Replace the max poolings of a function, and what else the device's rules say.

    These may be convolutions, gathers of one entry of each row, and in a sweep products of a matrix
    and a vector. Apply it before differentiation. Windows of more than 128 entries are unchanged,
    and so are groups of examples (``batch_group_count``), shardings of a result (``out_sharding``)
    and rules of custom derivatives, which are traced later. A function without such equations is
    called unchanged; inside of a trace its own trace takes its place, so that it is traced once.

    Args:
      function: any function of pytrees of arrays that JAX can trace.

    Example:
      >>> import jax.numpy as jnp
      >>> smooth = fast_inside_loops(lambda x: jnp.convolve(x, jnp.ones(3), mode="valid"))
      >>> x = jnp.arange(5.0)
      >>> smooth(x).tolist(), "rhs_dilation" in str(jax.make_jaxpr(smooth)(x))
      ([3.0, 6.0, 9.0], False)
    """

    @functools.wraps(function, updated=())  # a callable object may hold arrays
    def rewritten(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        leaves, structure = jax.tree.flatten((args, kwargs))
        if not (_rewrites.value and all(map(core.valid_jaxtype, leaves))):
            return function(*args, **kwargs)
        structures = []

        def flat(*leaves):
            args, kwargs = jax.tree.unflatten(structure, leaves)
            result = function(*args, **kwargs)  # pyright: ignore[reportCallIssue]
            results, structure_of_results = jax.tree.flatten(result)
            if not all(map(core.valid_jaxtype, results)):
                return []
            structures.append(structure_of_results)
            return results

        program = jax.make_jaxpr(flat)(*leaves)
        slow, traced = _has_slow(program.jaxpr), any(isinstance(x, Tracer) for x in leaves)
        if not (structures and (slow or traced)):
            return function(*args, **kwargs)
        if slow:
            program = core.ClosedJaxpr(_exchanged(program.jaxpr), program.consts)
        return jax.tree.unflatten(structures[0], core.jaxpr_as_fun(program)(*leaves))

    return rewritten


REWRITES.append(fast_inside_loops)


def _fast_form(equation: Any) -> Callable | None:
    find = FORMS.get(equation.primitive)
    return None if find is None else find(equation)


def _has_slow(program: Any) -> bool:
    return any(
        _fast_form(each) is not None or any(map(_has_slow, inner_programs(each)))
        for each in program.eqns
    )


def _exchanged(program: Any) -> Any:
    """The jaxpr with equations exchanged; its variables, constants and source lines are kept."""
    equations = []
    for equation in program.eqns:
        form = _fast_form(equation)
        if form is not None:
            avals = [variable.aval for variable in equation.invars]
            (call,) = jax.make_jaxpr(jax.jit(form))(*avals).jaxpr.eqns
            equation = equation.replace(primitive=call.primitive, params=call.params)
        elif any(map(_has_slow, inner_programs(equation))):
            params = {name: _with_exchanged(value) for name, value in equation.params.items()}
            equation = equation.replace(params=params)
        equations.append(equation)
    return program.replace(eqns=equations)


def _with_exchanged(value: Any) -> Any:
    """A parameter of an equation with the jaxprs in it exchanged."""
    if isinstance(value, core.ClosedJaxpr):
        return core.ClosedJaxpr(_exchanged(value.jaxpr), value.consts)
    if isinstance(value, core.Jaxpr):
        return _exchanged(value)
    if type(value) in (list, tuple):
        return type(value)(map(_with_exchanged, value))
    return value
