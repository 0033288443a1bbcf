"""Scans over a client's local steps, and how steps that it does not take are skipped.

Clients may differ in their number of steps, while a compiled program has one length for all. A step
is ``(carry, batch) -> (carry, outputs)``; a skipped step keeps the carry and outputs zeros.

The scans take ``max_steps``, their length, and ``taken``, the number of steps of this client.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.types import Array, PyTree
from fcojax.xla import rules
from fcojax.xla.jaxprs import num_equations

# Steps are grouped into at most this many blocks; indices are drawn per block, and a chunk of
# clients may stop early only between blocks.
_MAX_BLOCKS = 64

Step = Callable[..., tuple[PyTree, PyTree]]


class Minibatches(NamedTuple):
    """How to draw and gather the minibatches of a client.

    Attributes:
      offset: the client's first row.
      draw: ``(steps) -> (indices, weights)``, with indices that count from ``offset``.
      gather: ``(step, rows, weights) -> Batch``.
    """

    offset: Array
    draw: Callable[[Array], tuple[Array, Array | None]]
    gather: Callable[[Array, Array, Array | None], Any]


def full_batches(
    step: Step, carry: PyTree, everything: Any, max_steps: int, taken: Array | None
) -> tuple[PyTree, PyTree]:
    """Scan over steps on the same batch, ``everything``; a ``taken`` of ``None`` means all."""

    def one_step(carry, index):
        batch = everything._replace(step=index)
        # Every client takes all steps, so no step needs a mask or a branch.
        if taken is None:
            return step(carry, batch)
        return _step_if(index < taken, lambda carry: step(carry, batch), carry)

    return _scan(one_step, carry, jnp.arange(max_steps, dtype=jnp.int32))


def all_minibatches(
    step: Step, carry: PyTree, batches: Minibatches, max_steps: int
) -> tuple[PyTree, PyTree]:
    """Scan over minibatches, all of which the client uses."""
    steps = jnp.arange(max_steps, dtype=jnp.int32)
    # Indices of all steps are drawn at once: one shuffle costs less than one for each step.
    indices, weights = batches.draw(steps)
    drawn = steps, batches.offset + indices, weights
    return _scan(lambda carry, drawn: step(carry, batches.gather(*drawn)), carry, drawn)


def some_minibatches(
    step: Step,
    carry: PyTree,
    batches: Minibatches,
    max_steps: int,
    taken: Array,
    longest: Array,
) -> tuple[PyTree, PyTree]:
    """Scan over minibatches, of which the client uses the first ``taken``.

    In a chunk of clients some finish before others. Once all have finished, a branch common to them
    is skipped, so nothing is drawn or computed beyond the client with most steps. A branch for each
    client would give each a copy of the rows of all clients. ``longest`` is the most steps of any
    client in the chunk.
    """

    def take_if_real(carry, real, *drawn):
        moved, emitted = step(carry, batches.gather(*drawn))
        nothing = tree.zeros_like(emitted)
        return tree.where(real, (moved, emitted), (carry, nothing))

    def take_if_needed(carry, drawn):
        index, *rest = drawn
        return _step_if(
            index < longest, lambda carry, *rest: take_if_real(carry, *rest), carry, *rest
        )

    def take_block(carry, steps):
        indices, weights = batches.draw(steps)
        # XLA would repeat the division in `taken` for every entry of the carry, so compare here.
        drawn = steps, steps < taken, steps, batches.offset + indices, weights
        return _scan(take_if_needed, carry, drawn)

    def take_block_if_needed(carry, steps):
        return _branch(steps[0] < longest, take_block, carry, steps)

    # Blocks have equal sizes, so the last may run past max_steps. No client takes those steps, and
    # their outputs are cut off.
    block_size = -(-max_steps // _MAX_BLOCKS)
    steps = jnp.arange(-(-max_steps // block_size) * block_size, dtype=jnp.int32)
    carry, emitted = jax.lax.scan(take_block_if_needed, carry, steps.reshape(-1, block_size))
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:max_steps], emitted)
    return carry, flat


def _scan(step: Step, carry: PyTree, each: PyTree) -> tuple[PyTree, PyTree]:
    """``jax.lax.scan`` over the steps, unrolled as far as the device prefers."""
    limit, unroll = rules.rules().unrolled_equations, 1
    if limit > 0:
        first = jax.tree.map(lambda leaf: leaf[0], each)
        # By size: ten steps of a linear model are unrolled, a network's steps stay a loop.
        unroll = max(1, limit // num_equations(step, carry, first))
    return jax.lax.scan(step, carry, each, unroll=unroll)


def _step_if(condition: Array, step: Step, carry: PyTree, *args: PyTree) -> tuple[PyTree, PyTree]:
    """``step(carry, *args)`` where the condition holds, else the carry unchanged and zeros.

    On devices where waiting for a condition is slow, the step is always computed, then masked.
    """
    if rules.rules().masks:
        moved, emitted = step(carry, *args)
        return tree.where(condition, (moved, emitted), (carry, tree.zeros_like(emitted)))
    return _branch(condition, step, carry, *args)


def _branch(condition: Array, step: Step, carry: PyTree, *args: PyTree) -> tuple[PyTree, PyTree]:
    """Return the result of ``_step_if``, with a branch, for steps that cost more than a branch."""
    step = jax.jit(step)  # traced once, for its shapes and for the branch
    emitted = jax.eval_shape(step, carry, *args)[1]

    def skip(carry, *args):
        return carry, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), emitted)

    return jax.lax.cond(condition, step, skip, carry, *args)
