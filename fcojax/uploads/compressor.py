"""Compressors: maps of one array to fewer bytes and back, with bounds on the error."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax.arguments import factory
from fcojax.types import Array, Key, ManyArrays, OneArray, PyTree, Scalar


class Compressor(NamedTuple):
    r"""A map of one array to fewer bytes and back.

    It is *unbiased* if E C(x) = x, with :math:`E |C(x) - x|^2 \le w |x|^2`, and *contractive* if
    :math:`E |C(x) - x|^2 \le (1 - a) |x|^2` with a > 0.

    Attributes:
      name: the call that makes it, for error messages.
      encode: ``(hparams, x, key) -> encoded``, arrays that are sent. The server has the key too, so
        draws from it need no bytes.
      decode: ``(hparams, encoded, key, like) -> array``, with the same key, and ``like`` of the
        shape and dtype of x.
      variance: ``(hparams, like) -> w``, or ``None`` if it is biased.
      contraction: ``(hparams, like) -> a``, or ``None`` if it is not contractive.

    Example:
      >>> from fcojax import uploads
      >>> top, x, key = uploads.top_k(2), jnp.array([3.0, -1.0, 0.5, -4.0]), jax.random.key(0)
      >>> top.decode(None, top.encode(None, x, key), key, x).tolist()
      [3.0, 0.0, 0.0, -4.0]
    """

    name: str
    encode: Callable[[Any, OneArray, Key], PyTree]
    decode: Callable[[Any, ManyArrays, Key, OneArray], Array]
    variance: Callable[[Any, OneArray], Scalar] | None = None
    contraction: Callable[[Any, OneArray], Scalar] | None = None

    example = "uploads.top_k(0.01)"


@factory
def contractive(compressor: Compressor) -> Compressor:
    r"""Return an unbiased compressor divided by 1 + w, which is contractive with a = 1 / (1 + w).

    Error feedback needs it; :math:`w` may be above 1, and then the unbiased one is not contractive.

    Args:
      compressor: an unbiased compressor; a contractive one is returned unchanged.

    Example:
      >>> from fcojax import uploads
      >>> contractive(uploads.rand_k(1)).contraction(None, jnp.zeros(4))  # one entry, unscaled
      0.25
    """
    variance = compressor.variance
    if compressor.contraction is not None or variance is None:
        require_contractive(compressor)
        return compressor

    def share(hparams, like):
        return 1 / (1 + variance(hparams, like))

    def decode(hparams, encoded, key, like):
        decoded = compressor.decode(hparams, encoded, key, like)
        return jnp.asarray(share(hparams, like), decoded.dtype) * decoded

    return compressor._replace(
        name=f"contractive({compressor.name})", decode=decode, variance=None, contraction=share
    )


@factory
def compose(first: Compressor, second: Compressor) -> Compressor:
    r"""Return a compressor whose sent values are compressed once more, as in top-k of 8 bits.

    It is unbiased if both are, with :math:`1 + w = (1 + w_1)(1 + w_2)`. It is contractive with
    :math:`a = a_1 a_2` if the first one keeps entries unchanged and the second is contractive.

    Args:
      first: a compressor whose ``encode`` returns a NamedTuple with a field ``values``: ``top_k``
        or ``rand_k``.
      second: the compressor of these values.

    Example:
      >>> from fcojax import uploads
      >>> compose(uploads.top_k(8), uploads.half()).name
      'compose(top_k(8), half())'
    """

    def sent_first(hparams, like):
        x = jax.ShapeDtypeStruct(like.shape, like.dtype)
        return jax.eval_shape(lambda x: first.encode(hparams, x, jax.random.key(0)), x)

    def encode(hparams, x, key):
        one, other = jax.random.split(key)
        encoded = first.encode(hparams, x, one)
        if not hasattr(encoded, "values"):
            raise ValueError(f"first is {first.name}; pass top_k(...) or rand_k(...).")
        return encoded._replace(values=second.encode(hparams, encoded.values, other))

    def decode(hparams, encoded, key, like):
        one, other = jax.random.split(key)
        values = second.decode(hparams, encoded.values, other, sent_first(hparams, like).values)
        return first.decode(hparams, encoded._replace(values=values), one, like)

    def combined(firsts, seconds, join):
        if firsts is None or seconds is None:
            return None
        return lambda hparams, like: join(
            firsts(hparams, like), seconds(hparams, sent_first(hparams, like).values)
        )

    return Compressor(
        f"compose({first.name}, {second.name})",
        encode,
        decode,
        variance=combined(first.variance, second.variance, lambda v, w: (1 + v) * (1 + w) - 1),
        contraction=combined(first.contraction, second.contraction, lambda a, b: a * b),
    )


def bits_for(number: int) -> int:
    """Return the bits that distinguish this many cases."""
    return math.ceil(math.log2(number)) if number < 2**32 else number.bit_length()


def packed(numbers: Array, num_bits: int) -> Array:
    """Return integers from 0 to ``2**num_bits - 1`` as bytes, with zeros at the end of the last."""
    if num_bits in (8, 16, 32):
        return numbers.astype(f"uint{num_bits}")
    places = jnp.arange(num_bits, dtype=jnp.uint32)[None]
    bits = (numbers.astype(jnp.uint32)[:, None] >> places) & jnp.uint32(1)
    return jnp.packbits(bits.astype(jnp.uint8).reshape(-1))


def unpacked(code: Array, num_bits: int, size: int) -> Array:
    """Return the ``size`` numbers that ``packed`` encoded."""
    if num_bits in (8, 16, 32):
        return code.astype(jnp.uint32)
    places = jnp.arange(num_bits, dtype=jnp.uint32)[None]
    bits = jnp.unpackbits(code, count=size * num_bits).reshape(size, num_bits)
    return jnp.sum(bits.astype(jnp.uint32) << places, axis=1, dtype=jnp.uint32)


def require_contractive(compressor: Compressor) -> None:
    """Raise ``ValueError`` for a compressor that is not contractive."""
    if compressor.contraction is None:
        raise ValueError(
            f"compressor is {compressor.name}, which states no contraction; if it is unbiased, "
            f"pass contractive({compressor.name}), otherwise one such as top_k(0.01)."
        )
