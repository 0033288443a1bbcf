"""Loops with a traced number of iterations, and bounds that stay scalars under ``vmap``."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.extend import core

from fcojax.types import Array, PyTree


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
