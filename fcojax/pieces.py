"""Consecutive entries of a long array, read for each of a few clients.

XLA takes a gather on a CPU to cost what it gathers from: ten numbers out of a million are shared
among all cores, which takes 4 microseconds, as long as a small client's step. A loop over small
slices is one kernel on one core.
"""

import functools
import math

import jax

from fcojax.device import rules
from fcojax.types import Array

# From 2 kB on, or for more clients, a loop that waits for one slice after the other is slower.
_SMALL_BYTES, _FEW = 256, 1024


def piece(array: Array, start: Array, size: int) -> Array:
    """``array[start : start + size]`` along the first axis; the start is in bounds.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> starts = jnp.array([2, 0])
      >>> jax.vmap(lambda start: piece(jnp.arange(5), start, 3))(starts).tolist()
      [[2, 3, 4], [0, 1, 2]]
    """
    read = functools.partial(jax.lax.dynamic_slice_in_dim, slice_size=size)

    @jax.custom_batching.custom_vmap
    def one_of_several(array, start):
        return read(array, start)

    @one_of_several.def_vmap
    def all_of_them(axis_size, mapped, array, start):
        num_bytes = size * array.dtype.itemsize * math.prod(array.shape[1:])
        small = num_bytes <= _SMALL_BYTES and axis_size <= _FEW
        if rules().gathers_by_source and small and not mapped[0]:
            return jax.lax.map(lambda start: one_of_several(array, start), start), True
        axes = tuple(0 if is_mapped else None for is_mapped in mapped)
        return jax.vmap(read, axes)(array, start), True

    @jax.custom_jvp
    def differentiable(array, start):
        return one_of_several(array, start)

    @differentiable.defjvp
    def along(primals, tangents):
        return jax.jvp(read, primals, tangents)

    return differentiable(array, start)
