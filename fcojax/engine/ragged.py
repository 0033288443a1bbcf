"""Clients of different sizes, without each of them paying for the largest.

Shapes are static, so a client's rows are padded. A population names a few row counts to pad to; a
chunk of clients runs the branch of the least one that holds its largest member, and chunk-mates
are chosen to be alike.
"""

import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from fcojax.algorithms.local import Work
from fcojax.problems.clients import ClientData
from fcojax.types import Array


def bounds_for(work: Work, data: ClientData) -> tuple[int, ...]:
    """Row counts to pad to, ascending; only one where a client's size does not change its work."""
    same_steps = work.max_steps(data.min_size) == work.max_steps(data.max_size)
    if work.batch_size is not None and same_steps:
        return (data.max_size,)
    return data.size_bounds


def needs(data: ClientData, rows: Array, weights: Array) -> Array:
    """Examples of the clients in these rows; none of one that is absent."""
    return jnp.where(weights > 0, data.offsets[rows + 1] - data.offsets[rows], 0)


def alike(needs: Array) -> Array:
    """The order in which clients of similar needs become chunk-mates; the absent come last."""
    return jnp.argsort(-needs)


def branch(bounds: tuple[int, ...], needs: Array) -> Array:
    """Which bound is the least that holds a chunk's clients, in all runs that are mapped over."""
    need = _largest_of_all_runs(jnp.max(needs))
    return jnp.sum(jnp.asarray(bounds[:-1], need.dtype) < need, dtype=jnp.int32)


@custom_vmap
def _largest_of_all_runs(need: Array) -> Array:
    """The largest of the numbers that ``vmap`` sees, so that a branch on it stays one branch.

    A branch on a mapped number runs all branches and selects among their results.
    """
    return need


@_largest_of_all_runs.def_vmap
def _reduce(axis_size, in_batched, need):
    del axis_size, in_batched
    return _largest_of_all_runs(jnp.max(need)), False


def padded_share(data: ClientData, work: Work, client_chunk_size: int = 1) -> float:
    """The share of the rows in everyone's steps that are padding: computed, and of weight zero.

    Args:
      data: the clients.
      work: what each of them does.
      client_chunk_size: clients that work side by side, as in ``run``. One by one, a client skips
        the steps that it does not take; side by side all take as many as the one with most.

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
    bounds = jnp.asarray(bounds_for(work, data), sizes.dtype)
    padded = bounds[jnp.searchsorted(bounds, sizes[::per_chunk])].tolist()
    if work.batch_size is None:
        slots = per_chunk * sum(padded)
        return 1 - int(jnp.sum(sizes)) / slots
    sizes = sizes.tolist()
    steps = [work.max_steps(size) for size in (padded if per_chunk > 1 else sizes)]
    slots = per_chunk * work.batch_size * sum(steps)
    if work.num_epochs is not None:
        return 1 - work.num_epochs * sum(sizes) / slots
    drawn = [work.batch_size if work.replace else min(size, work.batch_size) for size in sizes]
    return 1 - work.max_steps(1) * sum(drawn) / slots
