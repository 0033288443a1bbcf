"""Whole numbers of a few bits each, packed into bytes."""

import math

import jax.numpy as jnp

from fcojax.types import Array


def bits_for(number: int) -> int:
    """Return the bits that distinguish this many cases.

    Example:
      >>> [bits_for(number) for number in (1, 2, 3, 1024, 1025)]
      [0, 1, 2, 10, 11]
    """
    return math.ceil(math.log2(number)) if number < 2**32 else number.bit_length()


def packed(numbers: Array, num_bits: int) -> Array:
    """Return numbers below ``2**num_bits`` as bytes, with zeros at the end of the last one.

    Args:
      numbers: a vector of integers, 0 or more.
      num_bits: bits of each, at most 32.

    Example:
      >>> packed(jnp.array([1, 2, 3, 0]), 2).tolist()  # 10 01 11 00, the lowest bit first
      [156]
    """
    if num_bits in (8, 16, 32):
        return numbers.astype(f"uint{num_bits}")
    places = jnp.arange(num_bits, dtype=jnp.uint32)[None]
    bits = (numbers.astype(jnp.uint32)[:, None] >> places) & jnp.uint32(1)
    return jnp.packbits(bits.astype(jnp.uint8).reshape(-1))


def unpacked(code: Array, num_bits: int, size: int) -> Array:
    """Return the numbers that ``packed`` encoded.

    Args:
      code: the bytes.
      num_bits: bits of each number.
      size: how many numbers there are.

    Example:
      >>> unpacked(packed(jnp.array([5, 0, 7]), 3), 3, 3).tolist()
      [5, 0, 7]
    """
    if num_bits in (8, 16, 32):
        return code.astype(jnp.uint32)
    places = jnp.arange(num_bits, dtype=jnp.uint32)[None]
    bits = jnp.unpackbits(code, count=size * num_bits).reshape(size, num_bits)
    return jnp.sum(bits.astype(jnp.uint32) << places, axis=1, dtype=jnp.uint32)
