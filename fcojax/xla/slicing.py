"""Short slices of a long array, one for each of a few clients, and one entry of each row.

On a CPU, XLA estimates the cost of a gather by the size of its source: reading ten numbers out of a
million is distributed over all cores, which takes 4 microseconds, as long as the step of a small
client. A loop over small slices is one kernel on one core.

On an accelerator a gather and its gradient, a scatter, are kernels of their own, where a sum over
the entries of a short row is a part of the kernels before and after it.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.lax import GatherScatterMode

from fcojax.types import Array
from fcojax.xla.rules import rules

# From 2 kB per slice on, or for more clients, the sequential loop is slower than a gather.
_SMALL_BYTES, _FEW = 256, 1024


def small_slice(array: Array, start: Array, size: int) -> Array:
    """Return ``array[start : start + size]`` along the first axis.

    Args:
      array: any array.
      start: index of the first entry, in bounds.
      size: number of entries.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> starts = jnp.array([2, 0])
      >>> jax.vmap(lambda start: small_slice(jnp.arange(5), start, 3))(starts).tolist()
      [[2, 3, 4], [0, 1, 2]]
    """
    read = functools.partial(jax.lax.dynamic_slice_in_dim, slice_size=size)

    @jax.custom_batching.custom_vmap
    def single(array, start):
        return read(array, start)

    @single.def_vmap
    def over_a_batch(axis_size, mapped, array, start):
        num_bytes = size * array.dtype.itemsize * math.prod(array.shape[1:])
        small = num_bytes <= _SMALL_BYTES and axis_size <= _FEW
        if rules().gathers_by_source and small and not mapped[0]:
            return jax.lax.map(lambda start: single(array, start), start), True
        axes = tuple(0 if is_mapped else None for is_mapped in mapped)
        return jax.vmap(read, axes)(array, start), True

    @jax.custom_jvp
    def differentiable(array, start):
        return single(array, start)

    @differentiable.defjvp
    def along(primals, tangents):
        return jax.jvp(read, primals, tangents)

    return differentiable(array, start)


def entry_of_each_row(array: Array, index: Array, mode: GatherScatterMode, fill: float) -> Array:
    """Return one entry of each row, the last axis, as a sum of the entry and zeros.

    Args:
      array: rows of floats, with any axes in front.
      index: the position in each row, with the axes in front, or one position for all rows.
      mode: what is done about a position outside of the row, as in ``jax.lax.gather``.
      fill: the entry at such a position, if that is the mode.

    Example:
      >>> rows = jnp.array([[1.0, 2.0], [3.0, 4.0]])
      >>> entry_of_each_row(rows, jnp.array([1, 0]), GatherScatterMode.CLIP, 0.0).tolist()
      [2.0, 3.0]
    """
    last = array.shape[-1] - 1
    # No narrower than the numbers that it is compared with.
    index = index.astype(index.dtype if index.dtype.itemsize >= 4 else jnp.int32)
    index = index.reshape(array.shape[:-1] if index.size > 1 else (1,) * (array.ndim - 1))
    if mode == GatherScatterMode.CLIP:
        index = jnp.clip(index, 0, last)
    places = jax.lax.broadcasted_iota(index.dtype, array.shape, array.ndim - 1)
    entry = jnp.sum(jnp.where(index[..., None] == places, array, 0), axis=-1)
    if mode == GatherScatterMode.FILL_OR_DROP:
        entry = jnp.where((index >= 0) & (index <= last), entry, fill)
    return entry
