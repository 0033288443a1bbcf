"""Branches that stay branches under ``vmap``.

``vmap`` over a condition makes ``jax.lax.cond`` run both sides, and gives each run a copy of all
that they read: of the examples of a whole population, once for each seed and point of a sweep.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from fcojax import tree
from fcojax.types import Array, PyTree


@custom_vmap
def largest_of_all(number: Array) -> Array:
    """The largest of the numbers that ``vmap`` sees, so that a branch on it stays one branch."""
    return number


@largest_of_all.def_vmap
def _reduce(axis_size, in_batched, number):
    del axis_size, in_batched
    return largest_of_all(jnp.max(number)), False


def either(condition: Array, first: Callable[[], PyTree], second: Callable[[], PyTree]) -> PyTree:
    """``first()`` where the condition holds, else ``second()``; neither runs where nobody wants it.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> jax.vmap(lambda x: either(x > 0, lambda: x, lambda: -x))(jnp.array([3, -4])).tolist()
      [3, 4]
    """
    some, others = largest_of_all(condition), largest_of_all(~condition)
    return tree.where(condition, _if_wanted(some, first), _if_wanted(others, second))


def _if_wanted(wanted: Array, function: Callable[[], PyTree]) -> PyTree:
    """What it returns, or zeros."""
    function = jax.jit(function)  # traced once, for its shapes and for the branch
    shapes = jax.eval_shape(function)

    def nothing():
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    return jax.lax.cond(wanted, function, nothing)
