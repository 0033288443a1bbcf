"""Loops, branches and short slices that stay what they are under ``vmap``.

With a batched condition ``vmap`` turns ``jax.lax.cond`` into a ``select``: both branches run, and
all arrays that they read are copied for each element of the batch. In a sweep that copied the
examples of the whole population for every seed and grid point.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.extend import core

from fcojax.types import Array, PyTree
from fcojax.xla.rules import rules

# From 2 kB per slice on, or for more clients, a sequential loop is slower than a gather.
_SMALL_BYTES, _FEW = 256, 1024
# What makes a function fast inside of loops; `fcojax.xla.jaxprs` adds `fast_inside_loops`.
REWRITES: list[Callable[[Callable], Callable]] = []


def rewritten(function: Callable) -> Callable:
    """Return a function after all rewrites, as it is called inside of loops."""
    return functools.reduce(lambda function, rewrite: rewrite(function), REWRITES, function)


def inner_programs(equation: Any) -> list[Any]:
    """Return the jaxprs inside an equation: bodies of loops, branches and calls."""
    values = equation.params.values()
    each = [x for value in values for x in (value if isinstance(value, tuple | list) else [value])]
    jaxprs = [getattr(value, "jaxpr", value) for value in each]
    return [value for value in jaxprs if hasattr(value, "eqns")]


def num_equations(function: Callable, *args: Any) -> int:
    """Return the number of equations that ``function`` evaluates, with its scans multiplied out.

    Example:
      >>> import jax.numpy as jnp
      >>> powers = lambda x: jax.lax.scan(lambda x, _: (2 * x, None), x, length=10)[0]
      >>> num_equations(powers, 1.0)
      11
    """
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(program: Any) -> int:
    inside = [
        equation.params.get("length", 1) * _count(inner)
        for equation in program.eqns
        for inner in inner_programs(equation)
    ]
    return len(program.eqns) + sum(inside)


@custom_vmap
def batch_max(number: Array) -> Array:
    """Return the maximum of a scalar over all enclosing ``vmap`` axes, as an unbatched value."""
    return number


@batch_max.def_vmap
def _reduce(_axis_size, _in_batched, number):
    return batch_max(jnp.max(number)), False


def scan_some(
    body: Callable, carry: PyTree, length: int, num: Array | None
) -> tuple[PyTree, PyTree]:
    """Run the first ``num`` iterations of ``jax.lax.scan`` without inputs.

    Args:
      body: ``(carry, None) -> (carry, outputs)``.
      carry: the value before the first iteration.
      length: number of iterations.
      num: how many of them are run; the outputs of the others are zero. ``None`` for all.

    Example:
      >>> body = lambda number, _: (number + 1, {"number": number, "square": number**2})
      >>> number, outputs = scan_some(body, jnp.int32(1), 3, num=jnp.int32(2))
      >>> int(number), outputs["square"].tolist()
      (3, [1, 4, 0])
    """
    if num is None:
        return jax.lax.scan(body, carry, length=length)
    # Traced once: for the shapes of its outputs, and for the loop below.
    program, shapes = jax.make_jaxpr(lambda carry: body(carry, None), return_shape=True)(carry)
    structure, step = jax.tree.structure(shapes), core.jaxpr_as_fun(program)
    outputs = jax.tree.map(lambda leaf: jnp.zeros((length, *leaf.shape), leaf.dtype), shapes[1])

    def one(index, so_far):
        carry, outputs = so_far
        carry, found = jax.tree.unflatten(structure, step(*jax.tree.leaves(carry)))
        return carry, jax.tree.map(lambda all, leaf: all.at[index].set(leaf), outputs, found)

    return jax.lax.fori_loop(0, jnp.minimum(num, length), one, (carry, outputs))


def or_zeros(needed: Array, function: Callable[[], PyTree]) -> PyTree:
    """``function()`` if it is needed, else zeros of the same shapes."""
    function = jax.jit(function)  # traced once, for its shapes and for the branch
    shapes = jax.eval_shape(function)
    return jax.lax.cond(needed, function, lambda: jax.tree.map(jnp.zeros_like, shapes))


def small_slice(array: Array, start: Array, size: int) -> Array:
    """Return ``array[start : start + size]`` along the first axis.

    On a CPU XLA estimates the cost of a gather by the size of its source: reading ten numbers out
    of a million is distributed over all cores, which takes 4 microseconds, as long as the step of a
    small client. Mapped over a few clients, this is a loop, which is one kernel on one core.

    Args:
      array: any array.
      start: index of the first entry, in bounds.
      size: number of entries.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> starts = jnp.array([2, 0])
      >>> jax.vmap(lambda start: small_slice(jnp.arange(5), start, 3))(starts).tolist()
      [[2, 3, 4], [0, 1, 2]]
    """
    read = functools.partial(jax.lax.dynamic_slice_in_dim, slice_size=size)

    @custom_vmap
    def single(array, start):
        return read(array, start)

    @single.def_vmap
    def over_a_batch(axis_size, mapped, array, start):
        num_bytes = size * array.dtype.itemsize * math.prod(array.shape[1:])
        small = num_bytes <= _SMALL_BYTES and axis_size <= _FEW
        if rules().gathers_by_source and small and not mapped[0]:
            return jax.lax.map(lambda start: single(array, start), start), True
        axes = tuple(0 if is_mapped else None for is_mapped in mapped)
        return jax.vmap(read, axes)(array, start), True

    differentiable = jax.custom_jvp(single)
    differentiable.defjvp(functools.partial(jax.jvp, read))
    return differentiable(array, start)
