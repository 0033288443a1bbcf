"""The cone of increasing sequences: isotonic regression by splitting blocks.

The pool adjacent violators algorithm grows blocks one entry at a time and is sequential. Here
blocks are whole signals at first, and each pass splits every unfinished block where that gains
most.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.blocks import along_axis, block_means, block_numbers, differences
from fcojax.transforms.indicators import indicator, largest
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Axis


@factory
def monotone(axis: Axis = -1) -> Penalty:
    r"""Return the cone :math:`\{x_1 \le x_2 \le \dots\}` of increasing signals along an axis.

    .. math:: \mathrm{prox}(v) = \mathrm{argmin}_{x_1 \le x_2 \le \dots} |x - v|^2

    This is isotonic regression: the result is constant on blocks, equal to the mean of v over the
    block, and its derivative averages over blocks. Signals in different leaves or along other axes
    are independent. The number of passes grows with the logarithm of the length, unless values grow
    geometrically. For decreasing signals, flip them. Step and scale have no effect.

    Args:
      axis: the axis of the signals, in every leaf; a scalar is a signal with one entry.

    Example:
      >>> monotone().prox(jnp.array([1.0, 3.0, 2.0, 4.0]), step=1.0, scale=1.0).tolist()
      [1.0, 2.5, 2.5, 4.0]

    References:
      Best and Chakravarti, "Active set algorithms for isotonic regression", 1990; Luss, Rosset and
      Shahar, "Efficient regularized isotonic regression with application to gene-gene interaction
      search", 2012, for splitting a block at its mean.
    """

    def value(x, scale):

        def drop(leaf):
            return along_axis(lambda flat, begins: -differences(flat, begins), axis, leaf)

        return indicator(largest(jax.tree.map(drop, x)), tree.max_abs(x))

    def prox(v, step, scale):
        moved = jax.tree.map(functools.partial(along_axis, isotonic, axis), tree.floats(v))
        return tree.cast_like(moved, v)

    return Penalty(value, prox)


def isotonic(flat: Array, begins: Array | np.ndarray) -> Array:
    """Return the closest increasing sequence to each signal; ``begins`` marks first entries."""
    blocks = block_numbers(_block_begins(jax.lax.stop_gradient(flat), begins))
    return block_means(flat, blocks)


def _block_begins(flat, signal_begins):
    """The mask of entries at which a block of the solution begins."""
    size = flat.size
    position = jnp.arange(size)
    epsilon = jnp.finfo(flat.dtype).eps
    rounding = 8 * epsilon * jnp.max(jnp.abs(flat))

    def split(state):
        begins, _ = state
        blocks = block_numbers(begins)
        rest = flat - block_means(flat, blocks)
        # Sum of the deviations from the block's mean before this entry. Where it is negative, the
        # entries before are below those after, and the block may be split.
        before = jnp.cumsum(rest) - rest
        first = jax.lax.cummax(jnp.where(begins, position, 0))
        ends = jnp.roll(begins, -1).at[-1].set(True)
        last = jax.lax.cummin(jnp.where(ends, position, size), reverse=True)
        excess = before - before[first]
        # Without a tolerance, rounding errors would separate equal entries one by one.
        shorter = jnp.minimum(position - first, last + 1 - position)
        excess = excess + rounding * shorter.astype(flat.dtype)
        least = jax.ops.segment_min(excess, blocks, size, indices_are_sorted=True)[blocks]
        more = (excess == least) & (excess < 0) & ~begins
        return begins | more, jnp.any(more)

    begins = jnp.asarray(signal_begins)
    return jax.lax.while_loop(lambda state: state[1], split, (begins, jnp.asarray(True)))[0]
