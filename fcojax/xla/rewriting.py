"""Replacement of convolutions and max pooling, of any library, by forms that are fast in loops.

Layers of Flax, Haiku, Equinox or plain JAX call ``jax.lax``, whose convolutions XLA runs slowly
inside loops on a CPU. Here a function is traced, and these equations of its jaxpr are replaced by
the forms of ``fcojax.xla.convolution``, also inside of jit, loops, branches, checkpoints and
functions with derivatives of their own. Derivatives are those of the new forms.
"""

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

import jax
from jax.extend import core
from jax.extend.core import primitives

from fcojax.xla.convolution import conv_general_dilated, reduce_window_max
from fcojax.xla.jaxprs import inner_programs
from fcojax.xla.rules import rules

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# Slices take memory and compile time in proportion to the window: a 5 x 5 x 5 kernel has 125 taps.
_MOST_TAPS = 128
_rewrites = jax.make_user_context(True)  # whether slow operations are replaced


def as_written() -> AbstractContextManager:
    """Return a context in which convolutions and poolings are not replaced.

    Example:
      >>> import fcojax
      >>> with as_written():
      ...     pass  # fcojax.run(...)
    """
    return _rewrites(False)


def fast_inside_loops(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Replace the max poolings of a function, and its convolutions if the device's rules say so.

    Apply it before differentiation. Windows of more than 128 entries are left unchanged, and so are
    groups of examples (``batch_group_count``), shardings of a result (``out_sharding``) and rules
    of custom derivatives, which are traced later. A function without any of these equations is
    called unchanged.

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
        if not (structures and _has_slow(program.jaxpr)):
            return function(*args, **kwargs)
        program = core.ClosedJaxpr(_exchanged(program.jaxpr), program.consts)
        return jax.tree.unflatten(structures[0], core.jaxpr_as_fun(program)(*leaves))

    return rewritten


def _has_slow(program: Any) -> bool:
    return any(
        _fast_form(equation) is not None or any(map(_has_slow, inner_programs(equation)))
        for equation in program.eqns
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


def _fast_form(equation: Any) -> Callable | None:
    """The function that computes an equation in another form, or ``None``."""
    params = dict(equation.params)
    if equation.primitive is primitives.conv_general_dilated_p:
        if not rules().slices:
            return None
        if params.pop("batch_group_count") > 1 or params.pop("out_sharding", None) is not None:
            return None
        kernel = equation.invars[1].aval
        form = conv_general_dilated
        window = [kernel.shape[axis] for axis in params["dimension_numbers"].rhs_spec[2:]]
    elif equation.primitive is primitives.reduce_window_max_p:
        form, window = reduce_window_max, params["window_dimensions"]
    else:
        return None
    is_empty = not all(atom.aval.size for atom in (*equation.invars, *equation.outvars))
    if is_empty or math.prod(window) > _MOST_TAPS:
        return None
    return functools.partial(form, **params)
