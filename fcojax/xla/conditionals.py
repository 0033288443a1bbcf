"""Conditionals and loops whose branches are skipped under ``vmap``, and on an accelerator unrolled.

If the condition is batched, ``vmap`` turns ``jax.lax.cond`` into a ``select``: both branches run,
and all arrays that they read are copied once per element of the batch.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.types import Array, PyTree
from fcojax.xla.loops import batch_max, or_zeros
from fcojax.xla.rules import rules


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
    return tree.where(condition, or_zeros(any_first, first), or_zeros(any_second, second))


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

    if rules().masks:
        state = jax.lax.fori_loop(0, usual, masked, state, unroll=True)
    return jax.lax.while_loop(unfinished, advance, state)
