r"""Compressors that send k of d entries: random ones, or the largest."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import at_most
from fcojax.shuffle import permuted
from fcojax.types import Array, Count, PyTree, Share
from fcojax.uploads.compressor import Compressor, bits_for, factory, packed, unpacked

# A number of entries, a share of them, or a function of the hyperparameters that returns a share.
Number = Count | Share | Callable[[Any], Any]


class Sparse(NamedTuple):
    """Some entries of a vector.

    Attributes:
      values: their values.
      places: their indices, packed; ``()`` if both sides draw them.
    """

    values: PyTree
    places: PyTree = ()


@factory
def rand_k(k: Number) -> Compressor:
    r"""Return k random entries times d / k; unbiased with w = d / k - 1.

    The variance is exactly :math:`w |x|^2`. The indices are drawn without replacement from a key
    that the server has, so only values are sent.

    Args:
      k: a number of entries; a share of them, as a float of at most 1 (at least one is sent);
        or ``hparams -> share``, to sweep it in one program.

    Example:
      >>> x, key, half = jnp.array([1.0, 2.0, 3.0, 4.0]), jax.random.key(0), rand_k(0.5)
      >>> sorted((half.decode(None, half.encode(None, x, key), key, x) / x).tolist())
      [0.0, 0.0, 2.0, 2.0]

    References:
      Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018.
    """

    def places(key, like, number):
        zero = jnp.zeros((), jnp.int32)
        return permuted(key, like.size, zero, jnp.arange(number, dtype=jnp.int32))

    def encode(hparams, x, key):
        flat, number = x.reshape(-1), _number_of(k, x, hparams)
        scale = jnp.asarray(x.size / number, x.dtype)
        if callable(k):
            chosen = jnp.arange(x.size, dtype=number.dtype) < number
            chosen = jnp.zeros(x.size, bool).at[places(key, x, x.size)].set(chosen)
            return Sparse(jnp.where(chosen, scale * flat, 0))
        return Sparse(scale * flat[places(key, x, number)])

    def decode(hparams, encoded, key, like):
        if callable(k):
            return encoded.values.reshape(like.shape)
        where = places(key, like, _number_of(k, like, hparams))
        return _scattered(encoded.values, where, like)

    def variance(hparams, like):
        return like.size / _number_of(k, like, hparams) - 1

    def num_bytes(hparams, like):
        return _number_of(k, like, hparams) * like.dtype.itemsize

    return Compressor(
        f"rand_k({_shown(k)})",
        encode,
        decode,
        variance,
        num_bytes=num_bytes if callable(k) else None,
    )


@factory
def top_k(k: Number) -> Compressor:
    r"""Return the k entries that are largest in absolute value; contractive with a = k / d.

    The bound is attained where all :math:`|x_j|` are equal. Of equal entries the first are taken.
    An index costs :math:`\lceil \log_2 d \rceil` bits.

    Args:
      k: a number of entries; a share of them, as a float of at most 1 (at least one is sent);
        or ``hparams -> share``, to sweep it in one program.

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
        flat, number = x.reshape(-1), _number_of(k, x, hparams)
        if callable(k):
            order = jnp.argsort(jnp.abs(flat), descending=True, stable=True)
            rank = jnp.zeros(x.size, jnp.int32).at[order].set(jnp.arange(x.size, dtype=jnp.int32))
            return Sparse(jnp.where(rank.astype(number.dtype) < number, flat, 0))
        _, where = jax.lax.top_k(jnp.abs(flat), number)
        return Sparse(flat[where], packed(where, bits_for(x.size)))

    def decode(hparams, encoded, key, like):
        if callable(k):
            return encoded.values.reshape(like.shape)
        number = _number_of(k, like, hparams)
        return _scattered(
            encoded.values, unpacked(encoded.places, bits_for(like.size), number), like
        )

    def contraction(hparams, like):
        return _number_of(k, like, hparams) / like.size

    def num_bytes(hparams, like):
        number = _number_of(k, like, hparams)
        return number * like.dtype.itemsize + jnp.ceil(number * bits_for(like.size) / 8)

    return Compressor(
        f"top_k({_shown(k)})",
        encode,
        decode,
        contraction=contraction,
        num_bytes=num_bytes if callable(k) else None,
    )


def _number_of(k: Any, like: Any, hparams: Any) -> Any:
    """Return how many entries of an array are sent: a Python integer, or traced if k is swept."""
    if callable(k):
        number = jnp.round(jnp.asarray(k(hparams), jnp.result_type(float)) * like.size)
        return jnp.clip(number, 1, like.size)
    if not hasattr(k, "__index__") or np.asarray(k).dtype.kind == "f":
        return max(1, round(float(k) * like.size))
    numbers = f", but the upload has {like.size} numbers"
    return at_most("k", operator.index(k), like.size, numbers, ", or a share such as 0.01")


def _scattered(values: Array, where: Array, like: Any) -> Array:
    """Return the vector with these entries; NaN, which is not counted, if a place is beyond it."""
    others = jnp.where(jnp.all(where < like.size), 0.0, jnp.nan).astype(like.dtype)
    return jnp.full(like.size, others).at[where].set(values).reshape(like.shape)


def _shown(k: Any) -> str:
    return getattr(k, "__name__", str(k))
