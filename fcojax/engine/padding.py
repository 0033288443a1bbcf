"""Padding of clients of different sizes.

Shapes are static, so clients are padded if a step takes all of their rows. A population has a few
row counts to pad to; a chunk of clients runs the branch of the smallest count that holds its
largest client. Chunks hold clients of similar size, which saves rows in full-batch steps, and steps
with minibatches.
"""

import jax.numpy as jnp

from fcojax.algorithms.work import Work
from fcojax.arguments import validated
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Count
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


@validated
def padded_share(data: ClientData, work: Work, client_chunk_size: Count = 1) -> float:
    """Return the share of rows in all clients' steps that are padding, computed with weight zero.

    Args:
      data: the clients.
      work: the work of each client.
      client_chunk_size: clients that run together, as in ``Plan``; each of them takes as many
        steps, and as many rows, as the largest.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"x": np.ones((2010, 600))}, [10, 1000, 1000])
      >>> one_by_one, all_at_once = (padded_share(data, fcojax.local_steps(1), c) for c in (1, 3))
      >>> one_by_one, round(all_at_once, 2)
      (0.0, 0.33)
    """
    num_chunks = -(-data.num_clients // client_chunk_size)
    per_chunk = -(-data.num_clients // num_chunks)
    # Chunks as `run_clients` makes them: sorted by size, of equal length.
    sizes = jnp.sort(data.sizes)[::-1]
    largest = sizes[::per_chunk]
    if work.batch_size is None:
        bounds = jnp.asarray(bounds_for(work, data), sizes.dtype)
        padded = bounds[jnp.searchsorted(bounds, largest)]
        return 1 - sum(sizes.tolist()) / (per_chunk * sum(padded.tolist()))
    slots = per_chunk * work.batch_size * sum(map(work.max_steps, largest.tolist()))
    if work.num_epochs is not None:
        return 1 - work.num_epochs * sum(sizes.tolist()) / slots
    in_a_step = sizes if not work.replace else jnp.full_like(sizes, work.batch_size)
    # With replacement even a client with few examples fills a batch; without it, the rest is
    # padding.
    drawn = jnp.minimum(in_a_step, work.batch_size).tolist()
    return 1 - work.max_steps(1) * sum(drawn) / slots
