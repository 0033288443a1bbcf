r"""A few bits for each entry: QSGD, powers of two, signs, DRIVE, halves, and sums on a grid."""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.shuffle import words
from fcojax.types import Array, Count, Key, Numbers, Positive
from fcojax.uploads.compressor import Compressor, bits_for, factory, packed, unpacked
from fcojax.uploads.transform import Facts, Sent, UploadTransform, number

# Beyond 24 bits, sums of whole numbers are not exact in float32.
Bits = Annotated[int, Numbers("a whole number from 2 to 24", lambda n: (n >= 2) & (n <= 24), True)]
_WHOLE = 0.25  # how far the rounding errors of a sum may be from a whole number


class Quantised(NamedTuple):
    """Entries as packed whole numbers, in units of a scale."""

    scale: Array
    codes: Array


@factory
def qsgd(levels: Count) -> Compressor:
    r"""Return QSGD: entries rounded at random to s levels of the norm, with their signs.

    .. math:: C(x)_j = |x|_2\, \mathrm{sign}(x_j)\, \xi_j / s, \qquad
              \xi_j = \lfloor s |x_j| / |x|_2 \rfloor + \mathrm{Bernoulli}(\text{the fraction})

    It is unbiased with :math:`w = \min(d / s^2, \sqrt d / s)`. An entry costs
    :math:`\lceil \log_2 (2 s + 1) \rceil` bits: 3 levels take 3 bits, 7 levels 4, 127 levels 8.

    Args:
      levels: s.

    Example:
      >>> from fcojax import uploads
      >>> uploads.facts(qsgd(5), jnp.zeros(1024, "float32")).num_bytes  # 4 bits each, and the norm
      516

    References:
      Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: communication-efficient SGD via gradient
      quantization and encoding", NeurIPS 2017.
    """
    bits = bits_for(2 * levels + 1)

    def encode(hparams, x, key):
        wide = tree.floats(x)
        norm = tree.norm(wide)
        steps = rounded(jnp.minimum(levels * jnp.abs(wide) / _not_zero(norm), levels), key)
        signed = jnp.where(wide < 0, -steps, steps)
        return Quantised(norm, packed((signed + levels).reshape(-1), bits))

    def decode(hparams, encoded, key, like):
        signed = unpacked(encoded.codes, bits, like.size).astype(encoded.scale.dtype) - levels
        return (encoded.scale * (signed.reshape(like.shape) / levels)).astype(like.dtype)

    return Compressor(
        f"qsgd({levels})",
        encode,
        decode,
        variance=lambda hparams, like: min(like.size / levels**2, math.sqrt(like.size) / levels),
    )


@factory
def natural() -> Compressor:
    r"""Return natural compression: entries rounded at random to a power of two.

    :math:`m\, 2^e` with :math:`1 \le m < 2` becomes :math:`2^{e+1}` with probability m - 1, else
    :math:`2^e`. It is unbiased with w = 1/8, attained at m = 4/3. Powers of two are unchanged.
    An entry costs 9 bits: a sign, and an exponent from -126 to 127; smaller numbers become zero.

    Example:
      >>> natural().variance(None, jnp.zeros(4))
      0.125

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
      >>> signs, x = sign(), jnp.array([1.0, -2.0, 3.0])
      >>> signs.decode(None, signs.encode(None, x, None), None, x).tolist()
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
def half() -> Compressor:
    r"""Return rounding to bfloat16, 16 bits; contractive with :math:`1 - a = 2^{-16}`.

    Example:
      >>> float(half().encode(None, jnp.array(1 / 3), None))
      0.333984375
    """
    return Compressor(
        "half()",
        encode=lambda hparams, x, key: x.astype(jnp.bfloat16),
        decode=lambda hparams, encoded, key, like: encoded.astype(like.dtype),
        contraction=lambda hparams, like: 1 - 2.0**-16,
    )


# The smallest a of rotated signs: half the square of the smallest mean |cos + sin| over a column,
# which is (2 + sqrt 2) / 4, over multiples of an eighth of the circle.
_LEAST = (3 + 2 * math.sqrt(2)) / 16


@factory
def drive(scale: Literal["unbiased", "least error"] = "unbiased") -> Compressor:
    r"""Return DRIVE: the signs of a rotated vector, and one scale S.

    With R a Hartley transform after random signs, the server decodes
    :math:`S R^T \mathrm{sign}(R x)`. An entry costs one bit. The paper rotates by a Hadamard
    transform, which pads to a power of two; Hartley's exists for every size, and its entries are
    larger by at most a factor of sqrt 2.

    Args:
      scale: ``"least error"``, for error feedback: :math:`S = |R x|_1 / d`, contractive with
        a = 0.364, :math:`(3 + 2 \sqrt 2) / 16`, for every x, by Khintchine's inequality, and about
        2 / pi where :math:`R x` is nearly normal, as in high dimension. ``"unbiased"``:
        :math:`S = |x|_2^2 / |R x|_1`, with which the decoded vector has the scalar product
        :math:`|x|_2^2` with x. It would be unbiased for a uniformly random rotation, with w about
        pi / 2 - 1; with this one a bias remains, which vanishes in high dimension but not for
        sparse x, so ``variance`` is ``None``.

    Example:
      >>> from fcojax import uploads
      >>> feedback = uploads.ef21(drive("least error"))

    References:
      Vargaftik, Ben-Basat, Portnoy, Mendelson, Ben-Itzhak and Mitzenmacher, "DRIVE: one-bit
      distributed mean estimation", NeurIPS 2021.
    """

    def encode(hparams, x, key):
        wide = tree.floats(x).reshape(-1)
        rotated = hartley(wide * _signs(key, wide.size, wide.dtype))
        total = jnp.sum(jnp.abs(rotated))
        if scale == "unbiased":
            size = jnp.sum(rotated * rotated) / jnp.where(total == 0, 1, total)
        else:
            size = total / max(rotated.size, 1)
        return Quantised(size, jnp.packbits(rotated >= 0))

    def decode(hparams, encoded, key, like):
        positive = jnp.unpackbits(encoded.codes, count=like.size).astype(bool)
        back = hartley(jnp.where(positive, encoded.scale, -encoded.scale))
        back = back * _signs(key, like.size, back.dtype)
        return back.reshape(like.shape).astype(like.dtype)

    return Compressor(
        f"drive({scale!r})",
        encode,
        decode,
        contraction=(lambda hparams, like: _LEAST) if scale == "least error" else None,
    )


def hartley(x: Array) -> Array:
    r"""Return the orthonormal Hartley transform of a vector of any size.

    .. math:: y_k = \frac{1}{\sqrt d} \sum_j x_j \left(\cos \frac{2 \pi j k}{d}
              + \sin \frac{2 \pi j k}{d}\right)

    It is real, symmetric and its own inverse.
    """
    if not x.size:
        return x
    found = jnp.fft.rfft(x)
    ahead, behind = found.real - found.imag, found.real + found.imag
    return jnp.concatenate([ahead, behind[1 : (x.size + 1) // 2][::-1]]) / math.sqrt(x.size)


def _signs(key: Key, size: int, dtype: Any) -> Array:
    """Return random signs."""
    return 1 - 2 * (words(key, jnp.arange(size)) >> 31).astype(dtype)


def _not_zero(scale: Array) -> Array:
    return jnp.where(scale == 0, 1, scale)


def rounded(x: Array, key: Any) -> Array:
    """Round each entry up with the probability of its fraction, else down."""
    below = jnp.floor(x)
    up = jax.random.uniform(key, x.shape, x.dtype) < x - below
    return below + up.astype(x.dtype)


@factory
def modular_sum(step: Positive | Callable[[Any], Any], bits: Bits) -> UploadTransform:
    r"""Return the transform for sums on a random grid, modulo :math:`2^b`.

    .. math:: q_i = \lfloor u_i / s + \mathrm{uniform}(0, 1) \rfloor, \qquad
              g = \frac{s}{n} \sum_i q_i, \qquad -2^{b-1} \le \sum_i q_i < 2^{b-1}.

    Each q is unbiased, with an error of at most :math:`s^2 / 4` per entry. Only the sum is needed,
    modulo :math:`2^b`, so a secure aggregation can hide the summands, which may be beyond the range
    themselves. A sum that would wrap is refused: the round changes nothing and is counted in
    ``history["refused"]``, because a server that sees only the remainder would take a wrong step.
    Whole numbers add up exactly, in any order. Clients have to have equal weights, as sums of whole
    numbers have no weights; with unequal weights every round is refused.

    Args:
      step: s; or ``hparams -> s``, to sweep it in one program.
      bits: b, the bits of a transmitted entry.

    Example:
      >>> up_to_thirty_two = modular_sum(1e-3, bits=16)

    References:
      Bonawitz, Salehi, Konecny, McMahan and Gruteser, "Federated learning with autotuned
      communication-efficient secure aggregation", Asilomar 2019.
    """
    half = 2 ** (bits - 1)

    def send(at, payload, state):
        size = number(at.hparams, step)
        codes = [
            rounded(_checked(x) / jnp.asarray(size, x.dtype), jax.random.fold_in(at.key, index))
            for index, x in enumerate(payload)
        ]
        return Sent(codes, num_bytes=sum(-(-leaf.size * bits // 8) for leaf in codes))

    def receive(at, found, weights, state):
        count, size = jnp.maximum(weights.count, 1), number(at.hparams, step)
        share = jnp.where(weights.share > 0, weights.share, 1)
        means, sound = [], jnp.asarray(True)
        for leaf in found.mean:
            own = count.astype(leaf.dtype)
            summed = leaf * own / share.astype(leaf.dtype)
            whole = jnp.round(summed)
            inside = (jnp.abs(summed - whole) <= _WHOLE) & (whole >= -half) & (whole < half)
            sound = sound & jnp.all(inside)
            means.append(whole * jnp.asarray(size, leaf.dtype) / own)
        means = [jnp.where(sound, leaf, jnp.nan) for leaf in means]
        return found._replace(mean=means), state

    name, facts = f"modular_sum({step}, {bits})", Facts(needs_sum=True)
    return UploadTransform(
        name, send=send, decode=lambda at, wire, state: wire, receive=receive, facts=facts
    )


def _checked(leaf: Array) -> Array:
    if not jnp.issubdtype(leaf.dtype, jnp.floating) or leaf.dtype.itemsize < 4:
        raise ValueError(
            f"an upload has a leaf of {leaf.dtype}, whose sums are not exact on a grid; wrap it in "
            "fcojax.algorithms.Public, or upload floats of 32 or 64 bits."
        )
    return leaf
