r"""Compressors that send k of d entries: random ones, or the largest."""

import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import at_most
from fcojax.shuffle import permuted
from fcojax.types import Array, Count, PyTree, Share
from fcojax.uploads.compressor import Compressor, bits_for, factory, packed, unpacked

# A number of entries, or a share of them.
Number = Count | Share


class Sparse(NamedTuple):
    """Some entries of a vector, and their indices, packed; ``()`` if both sides draw them."""

    values: PyTree
    places: PyTree = ()


@factory
def rand_k(k: Number) -> Compressor:
    r"""Return k random entries times d / k; unbiased with w = d / k - 1.

    The variance is exactly :math:`w |x|^2`. The indices are drawn without replacement from a key
    that the server has, so only values are sent.

    Args:
      k: a number of entries, or a share of them, as a float of at most 1 (at least one is sent).

    Example:
      >>> x, key, half = jnp.array([1.0, 2.0, 3.0, 4.0]), jax.random.key(0), rand_k(0.5)
      >>> sorted((half.decode(None, half.encode(None, x, key), key, x) / x).tolist())
      [0.0, 0.0, 2.0, 2.0]

    References:
      Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
    """

    def places(key, like):
        chosen = jnp.arange(_number_of(k, like), dtype=jnp.int32)
        return permuted(key, like.size, jnp.zeros((), jnp.int32), chosen)

    def encode(hparams, x, key):
        scale = jnp.asarray(x.size / _number_of(k, x), x.dtype)
        return Sparse(scale * x.reshape(-1)[places(key, x)])

    return Compressor(
        f"rand_k({k})",
        encode,
        decode=lambda hparams, encoded, key, like: _scattered(
            encoded.values, places(key, like), like
        ),
        variance=lambda hparams, like: like.size / _number_of(k, like) - 1,
    )


@factory
def top_k(k: Number) -> Compressor:
    r"""Return the k entries that are largest in absolute value; contractive with a = k / d.

    The bound is attained where all :math:`|x_j|` are equal. Of equal entries the first are taken.
    An index costs :math:`\lceil \log_2 d \rceil` bits.

    Args:
      k: a number of entries, or a share of them, as a float of at most 1 (at least one is sent).

    Example:
      >>> from fcojax import uploads
      >>> uploads.facts(top_k(0.01), jnp.zeros(1024, "float32")).num_bytes  # 10 times 32 + 10 bits
      53

    References:
      Alistarh, Hoefler, Johansson, Konstantinov, Khirirat and Renggli, "The convergence of
      sparsified gradient methods", NeurIPS 2018; Stich, Cordonnier and Jaggi, "Sparsified SGD with
      memory", NeurIPS 2018.
    """

    def encode(hparams, x, key):
        flat = x.reshape(-1)
        _, where = jax.lax.top_k(jnp.abs(flat), _number_of(k, x))
        return Sparse(flat[where], packed(where, bits_for(x.size)))

    def decode(hparams, encoded, key, like):
        where = unpacked(encoded.places, bits_for(like.size), _number_of(k, like))
        return _scattered(encoded.values, where, like)

    return Compressor(
        f"top_k({k})",
        encode,
        decode,
        contraction=lambda hparams, like: _number_of(k, like) / like.size,
    )


def _number_of(k: Any, like: Any) -> int:
    """Return how many entries of an array are sent."""
    if not hasattr(k, "__index__") or np.asarray(k).dtype.kind == "f":
        return max(1, round(float(k) * like.size))
    numbers = f", but the upload has {like.size} numbers"
    return at_most("k", operator.index(k), like.size, numbers, ", or a share such as 0.01")


def _scattered(values: Array, where: Array, like: Any) -> Array:
    """Return the vector with these entries; NaN, which is not counted, if a place is beyond it."""
    others = jnp.where(jnp.all(where < like.size), 0.0, jnp.nan).astype(like.dtype)
    return jnp.full(like.size, others).at[where].set(values).reshape(like.shape)
