"""Blocks of neighbouring entries, shared by total variation and isotonic regression.

The signals of a leaf are concatenated to one flat vector, with a mask that marks the first entry of
each signal. A partition of the signals into blocks is given by a mask of the same kind. All
operations are scans or segment sums over that vector, for one signal or many.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.types import Array


def along_axis(function: Callable[[Array, np.ndarray], Array], axis: int, leaf: Array) -> Array:
    """Apply ``function(flat, begins)`` to the signals of a leaf that run along ``axis``.

    A scalar is a signal with one entry.
    """
    if leaf.size == 0:
        return leaf
    if leaf.ndim == 0:
        return function(leaf.reshape(1), np.array([True])).reshape(())
    signals = jnp.moveaxis(leaf, axis, -1)
    begins = np.arange(leaf.size) % signals.shape[-1] == 0
    return jnp.moveaxis(function(signals.ravel(), begins).reshape(signals.shape), -1, axis)


def block_numbers(begins: Array) -> Array:
    """Return the index of the block of each entry."""
    return jnp.cumsum(begins.astype(jnp.int32)) - 1


def block_means(values: Array, blocks: Array) -> Array:
    """Return the mean over its block at every entry.

    A second pass corrects the rounding error of the sum over a long block.
    """

    def over_blocks(entries):
        return jax.ops.segment_sum(entries, blocks, entries.size, indices_are_sorted=True)

    counts = jnp.maximum(over_blocks(jnp.ones_like(values)), 1.0)
    means = (over_blocks(values) / counts)[blocks]
    return means + (over_blocks(values - means) / counts)[blocks]


def differences(flat: Array, begins: np.ndarray) -> Array:
    """Return each entry minus the previous one, and 0 where a signal begins."""
    return jnp.where(begins, 0.0, flat - jnp.roll(flat, 1))
