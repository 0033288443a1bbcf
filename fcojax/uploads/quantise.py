r"""Compressors that send each entry in a few bits: QSGD, powers of two, signs, halves."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.types import Array, Count
from fcojax.uploads.compressor import Compressor, factory
from fcojax.uploads.packing import bits_for, packed, unpacked

Levels = Count | Callable[[Any], Any]


class Quantised(NamedTuple):
    """Entries as packed whole numbers, in units of a scale."""

    scale: Array
    codes: Array


@factory
def qsgd(levels: Levels) -> Compressor:
    r"""Return QSGD: entries rounded at random to s levels of the norm, with their signs.

    .. math:: C(x)_j = |x|_2\, \mathrm{sign}(x_j)\, \xi_j / s, \qquad
              \xi_j = \lfloor s |x_j| / |x|_2 \rfloor + \mathrm{Bernoulli}(\text{the fraction})

    It is unbiased with :math:`w = \min(d / s^2, \sqrt d / s)`. An entry costs
    :math:`\lceil \log_2 (2 s + 1) \rceil` bits: 3 levels take 3 bits, 7 levels 4, 127 levels 8.

    Args:
      levels: s; or ``hparams -> s``, to sweep it in one program.

    Example:
      >>> from fcojax import uploads
      >>> x = jnp.array([3.0, 0.0, -4.0, 0.0])  # of norm 5: already on a grid of fifths
      >>> fifths, key = qsgd(5), jax.random.key(0)
      >>> jnp.round(fifths.decode(None, fifths.encode(None, x, key), key, x), 3).tolist()
      [3.0, 0.0, -4.0, 0.0]
      >>> uploads.facts(fifths, jnp.zeros(1024, "float32")).num_bytes  # 4 bits each, and the norm
      516

    References:
      Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: communication-efficient SGD via gradient
      quantization and encoding", NeurIPS 2017.
    """

    def num_levels(hparams: Any, dtype: Any = float) -> Any:
        if not callable(levels):
            return levels
        return jnp.maximum(jnp.round(jnp.asarray(levels(hparams), jnp.result_type(dtype))), 1)

    def encode(hparams, x, key):
        wide = tree.floats(x)
        s = num_levels(hparams, wide.dtype)
        norm = tree.norm(wide)
        steps = rounded(jnp.minimum(s * jnp.abs(wide) / _not_zero(norm), s), key)
        signed = jnp.where(wide < 0, -steps, steps)
        if callable(levels):
            return Quantised(norm, signed)
        return Quantised(norm, packed((signed + s).reshape(-1), bits_for(2 * s + 1)))

    def decode(hparams, encoded, key, like):
        s, signed = num_levels(hparams, encoded.scale.dtype), encoded.codes
        if not callable(levels):
            signed = unpacked(encoded.codes, bits_for(2 * s + 1), like.size)
            signed = signed.astype(encoded.scale.dtype).reshape(like.shape) - s
        return (encoded.scale * (signed / s)).astype(like.dtype)

    def variance(hparams, like):
        s = num_levels(hparams)
        bounds = like.size / s**2, math.sqrt(like.size) / s
        return jnp.minimum(*bounds) if callable(levels) else min(bounds)

    def num_bytes(hparams, like):
        bits = jnp.ceil(jnp.log2(2 * num_levels(hparams) + 1))
        return jnp.ceil(like.size * bits / 8) + tree.mean_dtype(like.dtype).itemsize

    return Compressor(
        f"qsgd({getattr(levels, '__name__', levels)})",
        encode,
        decode,
        variance,
        num_bytes=num_bytes if callable(levels) else None,
    )


@factory
def natural() -> Compressor:
    r"""Return natural compression: entries rounded at random to a power of two.

    :math:`m\, 2^e` with :math:`1 \le m < 2` becomes :math:`2^{e+1}` with probability m - 1, else
    :math:`2^e`. It is unbiased with w = 1/8, attained at m = 4/3. Powers of two are unchanged.
    An entry costs 9 bits: a sign, and an exponent from -126 to 127; smaller numbers become zero.

    Example:
      >>> powers, x, key = natural(), jnp.array([0.5, -4.0, 0.0, 1.0]), jax.random.key(0)
      >>> powers.decode(None, powers.encode(None, x, key), key, x).tolist()
      [0.5, -4.0, 0.0, 1.0]

    References:
      Horvath, Ho, Horvath, Sahu, Canini and Richtarik, "Natural compression for distributed deep
      learning", 2019.
    """

    def encode(hparams, x, key):
        wide = tree.floats(x).reshape(-1)
        half, exponent = jnp.frexp(jnp.abs(wide))  # half is in [1/2, 1)
        power = exponent + rounded(2 * half - 1, key).astype(exponent.dtype) - 1
        codes = jnp.where((wide == 0) | (power < -126), 0, jnp.clip(power, -126, 127) + 127)
        return codes.astype(jnp.uint8), jnp.packbits(wide < 0)

    def decode(hparams, encoded, key, like):
        codes, negative = encoded
        size = jnp.ldexp(jnp.ones((), tree.mean_dtype(like.dtype)), codes.astype(jnp.int32) - 127)
        size = jnp.where(codes == 0, 0, size)
        signs = jnp.unpackbits(negative, count=like.size).astype(bool)
        return jnp.where(signs, -size, size).reshape(like.shape).astype(like.dtype)

    return Compressor(
        "natural()",
        encode,
        decode,
        variance=lambda hparams, like: 0.125,
        contraction=lambda hparams, like: 0.875,
    )


@factory
def sign() -> Compressor:
    r"""Return the signs times the mean absolute value, :math:`|x|_1 / d\; \mathrm{sign}(x)`.

    It is contractive with :math:`a = |x|_1^2 / (d |x|_2^2)`, at least 1 / d, and about 2 / pi for
    entries that are normally distributed. An entry costs one bit; zero is sent as positive.

    Example:
      >>> signs, x, key = sign(), jnp.array([1.0, -2.0, 3.0]), jax.random.key(0)
      >>> signs.decode(None, signs.encode(None, x, key), key, x).tolist()
      [2.0, -2.0, 2.0]

    References:
      Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD: compressed optimisation for
      non-convex problems", ICML 2018.
    """

    def encode(hparams, x, key):
        wide = tree.floats(x)
        return Quantised(jnp.mean(jnp.abs(wide)), jnp.packbits(wide.reshape(-1) >= 0))

    def decode(hparams, encoded, key, like):
        positive = jnp.unpackbits(encoded.codes, count=like.size).astype(bool)
        signed = jnp.where(positive, encoded.scale, -encoded.scale)
        return signed.reshape(like.shape).astype(like.dtype)

    return Compressor(
        "sign()", encode, decode, contraction=lambda hparams, like: 1 / max(like.size, 1)
    )


@factory
def half(dtype: Literal["bfloat16", "float16"] = "bfloat16") -> Compressor:
    r"""Return rounding to a float of 16 bits.

    It is contractive with :math:`1 - a = 2^{-16}` in bfloat16. In float16 it is :math:`2^{-22}` for
    entries between :math:`2^{-14}` and 65504: smaller ones lose digits, below :math:`2^{-25}` all
    of them, and larger ones become infinite.

    Args:
      dtype: ``"bfloat16"``, with the range of float32, or ``"float16"``, with eight times the
        precision of bfloat16.

    Example:
      >>> third = jnp.array([1 / 3])
      >>> [float(half(name).encode(None, third, None)[0]) for name in ("bfloat16", "float16")]
      [0.333984375, 0.333251953125]
    """
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    return Compressor(
        f"half({dtype!r})",
        encode=lambda hparams, x, key: x.astype(dtype),
        decode=lambda hparams, encoded, key, like: encoded.astype(like.dtype),
        contraction=lambda hparams, like: 1 - unit**2,
    )


def _not_zero(scale: Array) -> Array:
    return jnp.where(scale == 0, 1, scale)


def rounded(x: Array, key: Any) -> Array:
    """Round each entry up with the probability of its fraction, else down."""
    below = jnp.floor(x)
    up = jax.random.uniform(key, x.shape, x.dtype) < x - below
    return below + up.astype(x.dtype)
