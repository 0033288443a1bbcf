"""A loop until convergence, most often after a usual number of iterations."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax.types import Array, PyTree
from fcojax.xla.rules import rules


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
