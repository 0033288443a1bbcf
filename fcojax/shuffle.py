"""Random permutations of ``range(size)``, evaluated at single positions and without a sort.

Drawing S of M clients, or a minibatch of B examples, needs a few entries of a permutation only. A
keyed bijection computes each entry in O(1), with no table and no rejection. Its hash function also
gives random words indexed by counters, such as a client and a round.

Reference: Hoang, Morris and Rogaway, "An enciphering scheme based on a card shuffle", CRYPTO 2012.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax.types import Array, Key, PyTree
from fcojax.xla.rules import rules

# A round keeps the distance of two positions unless exactly one of them is swapped, which has
# probability 1/2. The initial random shift makes a single position exactly uniform.
_NUM_ROUNDS = 16


class Seed(NamedTuple):
    """Two random words derived from a key; compute them once before a loop that draws."""

    words: Array


def seed_of(key: Key | Seed) -> Seed:
    """Return the seed of a key, or the seed itself."""
    return key if isinstance(key, Seed) else Seed(jax.random.bits(key, (2,), jnp.uint32))


@jax.jit  # so that an enclosing program traces the sixteen rounds once
def permuted(key: Key | Seed, size: Array | int, stream: Array, position: Array) -> Array:
    """Return entry ``position`` of random permutation number ``stream`` of ``range(size)``.

    Permutations of different streams, or of different keys, are independent. Each round pairs x
    with ``pivot - x`` modulo ``size`` and swaps the two or not, by a hash of the pair.

    Args:
      key: a PRNG key, or its seed.
      size: number of entries of the permutation; may be traced.
      stream: integers that select a permutation; they broadcast against ``position``.
      position: integers in ``[0, size)``; other positions give an arbitrary index.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> order = permuted(jax.random.key(0), 5, jnp.zeros(5, int), jnp.arange(5))
      >>> sorted(order.tolist())
      [0, 1, 2, 3, 4]
    """
    seed = seed_of(key).words
    size = _at_least_one(size)
    stream = _mix(stream.astype(jnp.uint32) * jnp.uint32(0x9E3779B9) + seed[0]) ^ seed[1]
    # One row per round and stream; the barrier keeps XLA from recomputing them per position.
    rounds = jnp.arange(_NUM_ROUNDS + 1, dtype=jnp.uint32).reshape(-1, *(1,) * stream.ndim)
    salts = _mix(stream[None] + rounds * jnp.uint32(0x85EBCA6B))
    salts, sums = _apart((salts, _scaled(salts, size) + size))
    x = _wrapped(jnp.minimum(position.astype(jnp.uint32), size - 1) + (sums[0] - size), size)
    for salt, total in zip(salts[1:], sums[1:], strict=True):
        partner = _wrapped(total - x, size)
        coin = (jnp.maximum(x, partner) ^ salt) * jnp.uint32(0x9E3779B1)
        coin = (coin ^ (coin >> 15)) * jnp.uint32(0x846CA68B)
        x = jnp.where(coin >= jnp.uint32(1 << 31), partner, x)
    # Not fused with the gather that reads at this index: LLVM's vectoriser follows every path from
    # a value to an address in the same loop, and through sixteen rounds there are billions.
    return _apart(x.astype(jnp.int32))


def _at_least_one(size: Array | int) -> Array:
    size = jnp.asarray(size)
    if not jnp.issubdtype(size.dtype, jnp.integer):
        raise ValueError(f"size has the dtype {size.dtype}; pass a whole number.")
    return jnp.maximum(size, 1).astype(jnp.uint32)


def _apart(x: PyTree) -> PyTree:
    """Keep XLA from computing these arrays again in every loop that reads them."""
    return x if rules().few_kernels else jax.lax.optimization_barrier(x)


def _scaled(bits: Array, size: Array) -> Array:
    """Map random words to ``range(size)`` by a product; a remainder costs ten times as much."""
    fraction = (bits >> 8).astype(jnp.float32) * jnp.float32(2**-24)
    return jnp.minimum((fraction * size.astype(jnp.float32)).astype(jnp.uint32), size - 1)


def _wrapped(x: Array, size: Array) -> Array:
    """``x`` modulo ``size``, for x below ``2 * size``."""
    return jnp.minimum(x, x - size)  # below size the difference is near 2**32


def uniform_indices(key: Key | Seed, size: Array | int, *counters: Array) -> Array:
    """Return uniform draws from ``range(size)``, which may be traced, from ``words``."""
    return (words(key, *counters) % _at_least_one(size)).astype(jnp.int32)


@jax.jit
def words(key: Key | Seed, *counters: Array) -> Array:
    """Return random 32-bit words, one for each combination of the counters.

    A word depends on the key and its own counters only, not on the shape of the arrays.

    Args:
      key: a PRNG key, or its seed.
      *counters: integer arrays, which broadcast against each other.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> few, many = (words(jax.random.key(0), jnp.arange(n), jnp.array(7)) for n in (2, 9))
      >>> few.tolist() == many[:2].tolist()
      True
    """
    seed = seed_of(key).words
    word = seed[0]
    for counter in counters:
        word = _mix(word * jnp.uint32(0x9E3779B9) + (counter.astype(jnp.uint32) ^ seed[1]))
    return word


def _mix(x: Array) -> Array:
    """A bijection of 32-bit words in which every input bit affects every output bit."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
