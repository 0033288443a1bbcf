r"""Noise that is correlated across rounds: the inverse of a banded Toeplitz matrix times Gaussians.

With C lower triangular and :math:`c_{t-s}` in row t and column s, the noise of round t is row t of
:math:`C^{-1} Z`, which needs the noise of the last rounds only:

.. math:: \xi_t = \Big( z_t - \sum_{k=1}^{b-1} c_k \, \xi_{t-k} \Big) / c_0.

Releasing the sums plus :math:`C^{-1} Z` is equivalent to releasing C times the sums plus Z. A
client that takes part k times, never twice within b rounds, changes this by at most :math:`\sqrt{k}
\, |c|` clipping norms, because its columns of C have no common row. Later sums may depend on
earlier releases, as Z is Gaussian.

Denisov, McMahan, Rush, Smith and Thakurta, NeurIPS 2022, theorem 2.1; Choquette-Choo, Ganesh,
McKenna, McMahan, Rush, Thakurta and Xu, "(Amplified) banded matrix factorization: a
unified approach to private training", NeurIPS 2023.
"""

import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import validated
from fcojax.types import Array, Count


@validated
def square_root_bands(num_bands: Count) -> tuple[float, ...]:
    r"""Return the first coefficients of the square root of the matrix of prefix sums.

    .. math:: c_k = \prod_{j=1}^{k} \frac{2 j - 1}{2 j}, \qquad \sum_k c_k x^k = (1 - x)^{-1/2}

    Args:
      num_bands: b.

    Example:
      >>> square_root_bands(3)
      (1.0, 0.5, 0.375)

    References:
      Fichtenberger, Henzinger and Upadhyay, "Constant matters: fine-grained error bound on
      differentially private continual observation", ICML 2023, equation (2).
    """
    bands = [1.0]
    for k in range(1, num_bands):
        bands.append(bands[-1] * (2 * k - 1) / (2 * k))
    return tuple(bands)


def first_noise(bands: tuple[float, ...], payload: list) -> list:
    """Return the noise of the rounds before the first, zeros for all bands but one.

    Args:
      bands: the coefficients.
      payload: zeros in the form of an upload.
    """
    later = len(bands) - 1
    if not later:
        return []
    return [jnp.zeros((later, *x.shape), tree.mean_dtype(x.dtype)) for x in payload]


def correlated(bands: tuple[float, ...], normals: list, past: list) -> tuple[list, list]:
    """Return the correlated noise of a round, from normals of deviation 1, and the new past.

    Args:
      bands: the coefficients.
      normals: independent normal numbers.
      past: the noise of the last rounds, the latest first.
    """
    first, *later = bands
    if not later:
        return [normal / first for normal in normals] if first != 1 else normals, past

    def one(normal: Array, before: Array) -> Array:
        taken = jnp.tensordot(jnp.asarray(later, before.dtype), before, axes=1)
        return (normal - taken) / first

    noise = [one(normal, before) for normal, before in zip(normals, past, strict=True)]
    pairs = zip(noise, past, strict=True)
    return noise, [jnp.concatenate([own[None], before[:-1]]) for own, before in pairs]
