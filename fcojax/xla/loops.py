"""Loops and conditionals that stay what they are under ``vmap``.

If the condition is batched, ``vmap`` turns ``jax.lax.cond`` into a ``select``: both branches run,
and all arrays that they read are copied once per element of the batch. In a sweep that copied the
examples of the whole population for every seed and grid point.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.extend import core

from fcojax import tree
from fcojax.types import Array, PyTree
from fcojax.xla.rules import rules


@custom_vmap
def batch_max(number: Array) -> Array:
    """Return the maximum of a scalar over all enclosing ``vmap`` axes, as an unbatched value.

    A loop up to a batched number, or a branch on a batched condition, would become a ``select``.
    """
    return number


@batch_max.def_vmap
def _reduce(axis_size, in_batched, number):
    del axis_size, in_batched
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


def cond_unbatched(
    condition: Array, first: Callable[[], PyTree], second: Callable[[], PyTree]
) -> PyTree:
    """Return ``first()`` where the condition holds, else ``second()``.

    Under ``vmap`` a branch is skipped if no element of the batch selects it.

    Args:
      condition: a boolean scalar, which may be batched.
      first: a function without arguments.
      second: a function without arguments, with a result of the same structure, shapes and dtypes.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> size = lambda x: cond_unbatched(x > 0, lambda: x, lambda: -x)
      >>> jax.vmap(size)(jnp.array([3, -4])).tolist()
      [3, 4]
    """
    any_first, any_second = batch_max(condition), batch_max(~condition)
    return tree.where(condition, _or_zeros(any_first, first), _or_zeros(any_second, second))


def _or_zeros(needed: Array, function: Callable[[], PyTree]) -> PyTree:
    """``function()`` if it is needed, else zeros of the same shapes."""
    function = jax.jit(function)  # traced once, for its shapes and for the branch
    shapes = jax.eval_shape(function)

    def zeros():
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    return jax.lax.cond(needed, function, zeros)


def loop(
    unfinished: Callable[[PyTree], Array],
    advance: Callable[[PyTree], PyTree],
    state: PyTree,
    usual: int,
) -> PyTree:
    """Run ``jax.lax.while_loop``, on an accelerator with the first iterations unrolled.

    Unrolled iterations after the end are computed and discarded, so the result is the same.

    Args:
      unfinished: ``(state) -> bool``, whether to continue.
      advance: ``(state) -> state``, one iteration.
      state: the initial state.
      usual: the usual number of iterations, which are unrolled.
    """

    def masked(_, state):
        running, new_state = unfinished(state), advance(state)
        return jax.tree.map(lambda new, old: jnp.where(running, new, old), new_state, state)

    if rules().usual_first:
        state = jax.lax.fori_loop(0, usual, masked, state, unroll=True)
    return jax.lax.while_loop(unfinished, advance, state)
