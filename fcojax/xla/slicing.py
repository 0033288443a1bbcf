"""Short slices of a long array, one for each of a few clients.

On a CPU, XLA estimates the cost of a gather by the size of its source: reading ten numbers out of a
million is distributed over all cores, which takes 4 microseconds, as long as the step of a small
client. A loop over small slices is one kernel on one core.
"""

import functools
import math

import jax

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
