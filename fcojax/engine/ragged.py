"""Clients of different sizes, without each of them paying for the largest.

Shapes are static, so where a step takes all rows of a client they are padded. A population names a
few row counts to pad to; a chunk of clients runs the branch of the least one that holds its largest
member. Chunk-mates are chosen to be alike, which saves rows here and steps with minibatches.
"""

import jax.numpy as jnp

from fcojax.algorithms.work import Work
from fcojax.branches import largest_of_all
from fcojax.problems.clients import ClientData
from fcojax.types import Array


def sizes_matter(work: Work, data: ClientData) -> bool:
    """Whether clients of different sizes have different amounts of work."""
    if work.batch_size is None:
        return len(data.size_bounds) > 1
    return work.max_steps(data.min_size) < work.max_steps(data.max_size)


def bounds_for(work: Work, data: ClientData) -> tuple[int, ...]:
    """Row counts to pad to, ascending; only one for minibatches, which need no padding."""
    return data.size_bounds if work.batch_size is None else (data.max_size,)


def needs(data: ClientData, rows: Array, weights: Array) -> Array:
    """Examples of the clients in these rows; none of one that is absent."""
    return jnp.where(weights > 0, data.offsets[rows + 1] - data.offsets[rows], 0)


def alike(needs: Array) -> Array:
    """The order in which clients of similar needs become chunk-mates; the absent come last."""
    return jnp.argsort(-needs)


def branch(bounds: tuple[int, ...], needs: Array) -> Array:
    """Which bound is the least that holds a chunk's clients, in all runs that are mapped over."""
    need = largest_of_all(jnp.max(needs))
    return jnp.sum(jnp.asarray(bounds[:-1], need.dtype) < need, dtype=jnp.int32)


def padded_share(data: ClientData, work: Work, client_chunk_size: int = 1) -> float:
    """The share of the rows in everyone's steps that are padding: computed, and of weight zero.

    Args:
      data: the clients.
      work: what each of them does.
      client_chunk_size: clients that work side by side, as in ``run``; each of them takes as many
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
    drawn = jnp.minimum(in_a_step, work.batch_size).tolist()
    return 1 - work.max_steps(1) * sum(drawn) / slots
