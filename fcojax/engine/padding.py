"""Padding of clients of different sizes.

Shapes are static, so clients are padded if a step takes all of their rows. A population has a few
row counts to pad to; a chunk of clients runs the branch of the smallest count that holds its
largest client. Chunks hold clients of similar size, which saves rows in full-batch steps, and steps
with minibatches.
"""

import jax.numpy as jnp

from fcojax.algorithms.work import Work
from fcojax.problems.clients import ClientData
from fcojax.types import Array
from fcojax.xla.loops import batch_max


def sizes_matter(work: Work, data: ClientData) -> bool:
    """Return whether clients of different sizes have different amounts of work."""
    if work.batch_size is None:
        # Each step takes all rows: sizes matter if clients are padded to different bounds.
        return len(data.size_bounds) > 1
    # Minibatches have one size; clients then differ only in their number of steps, as with epochs.
    return work.max_steps(data.min_size) < work.max_steps(data.max_size)


def bounds_for(work: Work, data: ClientData) -> tuple[int, ...]:
    """Return the row counts to pad to, ascending; only one for minibatches, which need none."""
    return data.size_bounds if work.batch_size is None else (data.max_size,)


def num_examples_of(data: ClientData, rows: Array, weights: Array) -> Array:
    """Return the number of examples of the clients in these rows, 0 for an absent one."""
    return jnp.where(weights > 0, data.offsets[rows + 1] - data.offsets[rows], 0)


def order_by_size(num_examples: Array) -> Array:
    """Return the order that puts clients of similar size into one chunk, absent ones last."""
    # Absent clients count as empty, so the last chunks hold no one and are skipped.
    return jnp.argsort(-num_examples)


def branch(bounds: tuple[int, ...], sizes: Array) -> Array:
    """Return the index of the smallest bound that holds a chunk's clients, in all mapped runs."""
    # A bound that differed between the runs of a sweep would turn the branch into a `select`, which
    # computes every bound.
    largest = batch_max(jnp.max(sizes))
    return jnp.sum(jnp.asarray(bounds[:-1], largest.dtype) < largest, dtype=jnp.int32)
