"""Signals cut into blocks of neighbours: what total variation and isotonic regression share.

A leaf is seen as one flat vector that holds its signals one after another, with a mask of the
entries at which a signal begins. Blocks are a second such mask. Everything is a scan or a segment
sum over that vector, so one signal or many, on a CPU or an accelerator, take the same few passes.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.types import Array


def along_axis(function: Callable[[Array, np.ndarray], Array], axis: int, leaf: Array) -> Array:
    """``function(flat, begins)`` on the signals of a leaf that run along ``axis``.

    A scalar is a signal with one entry.
    """
    if leaf.size == 0:
        return leaf
    if leaf.ndim == 0:
        return function(leaf.reshape(1), np.array([True])).reshape(())
    if not -leaf.ndim <= axis < leaf.ndim:
        raise ValueError(
            f"the signals run along axis {axis} but a leaf has shape {leaf.shape}; choose an axis "
            "that every leaf has, or use on_subtree."
        )
    turned = jnp.moveaxis(leaf, axis, -1)
    begins = np.arange(leaf.size) % turned.shape[-1] == 0
    return jnp.moveaxis(function(turned.ravel(), begins).reshape(turned.shape), -1, axis)


def block_numbers(begins: Array) -> Array:
    """The number of each entry's block, counted from 0."""
    return jnp.cumsum(begins.astype(jnp.int32)) - 1


def block_means(values: Array, blocks: Array) -> Array:
    """The mean over its block, at every entry.

    The second pass takes back what the sum of a long block lost to rounding in the first.
    """

    def over_blocks(entries):
        return jax.ops.segment_sum(entries, blocks, entries.size, indices_are_sorted=True)

    counts = jnp.maximum(over_blocks(jnp.ones_like(values)), 1.0)
    means = (over_blocks(values) / counts)[blocks]
    return means + (over_blocks(values - means) / counts)[blocks]


def differences(flat: Array, begins: np.ndarray) -> Array:
    """Each entry minus the one before it, and 0 where a signal begins."""
    return jnp.where(begins, 0.0, flat - jnp.roll(flat, 1))
