r"""DRIVE and EDEN: a random rotation, then one or a few bits per entry and one scale.

The papers rotate by a Hadamard transform, which pads to a power of two; the Hartley transform here
exists for every size, and its entries are larger by at most a factor of sqrt 2.
"""

import math
from typing import Literal

import jax.numpy as jnp

from fcojax import tree
from fcojax.shuffle import words
from fcojax.types import Array, Key
from fcojax.uploads.compressor import Compressor, factory
from fcojax.uploads.packing import packed, unpacked
from fcojax.uploads.quantise import Quantised

Scale = Literal["unbiased", "least error"]

# The smallest a of rotated signs: half the square of the smallest mean |cos + sin| over a column,
# which is (2 + sqrt 2) / 4, over multiples of an eighth of the circle.
_LEAST = (3 + 2 * math.sqrt(2)) / 16

# The positive half of the best levels of 1 to 4 bits for a standard normal variable. Each is the
# mean of the variable between the midpoints to its neighbours.
NORMAL_LEVELS = {
    1: (0.7978845608028654,),
    2: (0.4527800346364921, 1.510417608499096),
    3: (0.24509417894422167, 0.7560052812058781, 1.3439092785050004, 2.1519457045369856),
    4: (
        *(0.12839502985114717, 0.3880482994902902, 0.6567591185324629, 0.94234045648696),
        *(1.2562311973471747, 1.6180463860218783, 2.0690172265313787, 2.732589570995154),
    ),
}


@factory
def drive(scale: Scale = "unbiased") -> Compressor:
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


@factory
def eden(bits: Literal[1, 2, 3, 4] = 2, scale: Scale = "unbiased") -> Compressor:
    r"""Return EDEN: a rotated vector in the best levels of the normal distribution.

    The rotated vector, of unit variance, is rounded to the :math:`2^b` levels Q that have the
    smallest mean squared error for a normal variable (Lloyd and Max), and scaled by :math:`|x|_2^2
    / \langle Q, R x \rangle`, so that the decoded vector has the scalar product :math:`|x|_2^2`
    with x. With one bit it is ``drive("unbiased")``, and as there a small bias remains and
    ``variance`` is ``None``: the error is about :math:`|x|_2^2` times 0.57, 0.13, 0.036 and 0.0096
    for one to four bits. With the scale of least error, :math:`\langle Q, R x \rangle / |Q|_2^2`,
    it is contractive, with :math:`a = 0.364` times the squared ratio of the smallest to the largest
    level for every x, and 1 minus 0.36, 0.12, 0.035 and 0.0095 in high dimension. For less than one
    bit per entry use ``compose(rand_k(share), eden(1))``.

    Args:
      bits: b, bits of each entry.
      scale: which scale, as in ``drive``.

    Example:
      >>> from fcojax import uploads
      >>> import jax
      >>> x, key = jnp.array([3.0, -1.0, 0.5, -4.0]), jax.random.key(0)
      >>> two_bits = eden(2)
      >>> decoded = two_bits.decode(None, two_bits.encode(None, x, key), key, x)
      >>> round(float(decoded @ x), 4)
      26.25
      >>> uploads.facts(two_bits, jnp.zeros(1024, "float32")).num_bytes
      260

    References:
      Vargaftik, Ben-Basat, Portnoy, Mendelson, Ben-Itzhak and Mitzenmacher, "EDEN:
      communication-efficient and robust distributed mean estimation for federated learning", ICML
      2022.
    """
    levels = NORMAL_LEVELS[bits]
    half = len(levels)

    def encode(hparams, x, key):
        rotated = _rotated(x, key)
        square = jnp.sum(rotated * rotated)
        unit = rotated * jnp.sqrt(rotated.size / jnp.where(square == 0, 1, square))
        place, sizes = _nearest(jnp.abs(unit), levels)
        product = jnp.sum(sizes * jnp.abs(rotated))
        if scale == "unbiased":
            size = square / jnp.where(product == 0, 1, product)
        else:
            size = product / jnp.sum(sizes * sizes)
        return Quantised(size, packed(jnp.where(rotated >= 0, place + half, place), bits))

    def decode(hparams, encoded, key, like):
        codes = unpacked(encoded.codes, bits, like.size).astype(jnp.int32)
        sizes = encoded.scale * _level(codes % half, levels, encoded.scale.dtype)
        return _rotated_back(jnp.where(codes >= half, sizes, -sizes), key, like)

    worst = _LEAST * (levels[0] / levels[-1]) ** 2
    return Compressor(
        f"eden({bits}, {scale!r})",
        encode,
        decode,
        contraction=(lambda hparams, like: worst) if scale == "least error" else None,
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


def _nearest(sizes: Array, levels: tuple[float, ...]) -> tuple[Array, Array]:
    """Return the index of the nearest level, and the level; without a gather, for few levels."""
    place = jnp.zeros(sizes.shape, jnp.int32)
    for below, above in zip(levels[:-1], levels[1:], strict=True):
        place += (sizes > (below + above) / 2).astype(jnp.int32)
    return place, _level(place, levels, sizes.dtype)


def _level(place: Array, levels: tuple[float, ...], dtype) -> Array:
    """Return the levels at these indices."""
    found = jnp.full(place.shape, levels[0], dtype)
    for index, level in enumerate(levels[1:], 1):
        found = jnp.where(place >= index, jnp.asarray(level, dtype), found)
    return found


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
