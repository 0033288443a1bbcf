r"""DRIVE: a random rotation, then one bit per entry and one scale.

The paper rotates by a Hadamard transform, which pads to a power of two; the Hartley transform here
exists for every size, and its entries are larger by at most a factor of sqrt 2.
"""

import math
from typing import Literal

import jax.numpy as jnp

from fcojax import tree
from fcojax.shuffle import words
from fcojax.types import Array, Key
from fcojax.uploads.compressor import Compressor, factory
from fcojax.uploads.quantise import Quantised

# The smallest a of rotated signs: half the square of the smallest mean |cos + sin| over a column,
# which is (2 + sqrt 2) / 4, over multiples of an eighth of the circle.
_LEAST = (3 + 2 * math.sqrt(2)) / 16


@factory
def drive(scale: Literal["unbiased", "least error"] = "unbiased") -> Compressor:
    r"""Return DRIVE: the signs of a rotated vector, and one scale S.

    With R a Hartley transform after random signs, the server decodes
    :math:`S R^T \mathrm{sign}(R x)`. An entry costs one bit.

    - ``"least error"``: :math:`S = |R x|_1 / d`, which has the smallest error. It is contractive
      with a = 0.364, :math:`(3 + 2 \sqrt 2) / 16`, for every x, by Khintchine's inequality, and
      about 2 / pi where :math:`R x` is nearly normal, as in high dimension. Use it for error
      feedback.
    - ``"unbiased"``: :math:`S = |x|_2^2 / |R x|_1`. The decoded vector has the scalar product
      :math:`|x|_2^2` with x, exactly. It would be unbiased for a uniformly random rotation, with
      w about pi / 2 - 1; with this one a bias remains, which vanishes in high dimension but not for
      sparse x. So ``variance`` is ``None``.

    Args:
      scale: which scale.

    Example:
      >>> import jax
      >>> x, key = jnp.array([3.0, -1.0, 0.5, -4.0]), jax.random.key(0)
      >>> one_bit = drive()
      >>> decoded = one_bit.decode(None, one_bit.encode(None, x, key), key, x)
      >>> round(float(decoded @ x), 4), float(x @ x)
      (26.25, 26.25)

    References:
      Vargaftik, Ben-Basat, Portnoy, Mendelson, Ben-Itzhak and Mitzenmacher, "DRIVE: one-bit
      distributed mean estimation", NeurIPS 2021.
    """

    def encode(hparams, x, key):
        rotated = _rotated(x, key)
        total = jnp.sum(jnp.abs(rotated))
        if scale == "unbiased":
            size = jnp.sum(rotated * rotated) / jnp.where(total == 0, 1, total)
        else:
            size = total / max(rotated.size, 1)
        return Quantised(size, jnp.packbits(rotated >= 0))

    def decode(hparams, encoded, key, like):
        positive = jnp.unpackbits(encoded.codes, count=like.size).astype(bool)
        signs = jnp.where(positive, encoded.scale, -encoded.scale)
        return _rotated_back(signs, key, like)

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

    Args:
      x: the vector.

    Example:
      >>> [round(number, 4) for number in hartley(jnp.array([1.0, 2.0, 3.0, 4.0])).tolist()]
      [5.0, -2.0, -1.0, 0.0]
    """
    if not x.size:
        return x
    found = jnp.fft.rfft(x)
    ahead, behind = found.real - found.imag, found.real + found.imag
    return jnp.concatenate([ahead, behind[1 : (x.size + 1) // 2][::-1]]) / math.sqrt(x.size)


def _signs(key: Key, size: int, dtype) -> Array:
    """Return random signs."""
    return 1 - 2 * (words(key, jnp.arange(size)) >> 31).astype(dtype)


def _rotated(x: Array, key: Key) -> Array:
    """Return R x, in at least single precision."""
    wide = x.reshape(-1).astype(tree.mean_dtype(x.dtype))
    return hartley(wide * _signs(key, wide.size, wide.dtype))


def _rotated_back(rotated: Array, key: Key, like) -> Array:
    """Return R^T y."""
    back = hartley(rotated) * _signs(key, rotated.size, rotated.dtype)
    return back.reshape(like.shape).astype(like.dtype)
