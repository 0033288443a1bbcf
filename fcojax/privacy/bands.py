r"""Noise that is correlated across rounds: the inverse of a banded Toeplitz matrix times Gaussians.

With C lower triangular and :math:`c_{t-s}` in row t and column s, the noise of round t is row t of
:math:`C^{-1} Z`, which needs the noise of the last rounds only:

.. math:: \xi_t = \Big( z_t - \sum_{k=1}^{b-1} c_k \, \xi_{t-k} \Big) / c_0.

Releasing sums plus noise :math:`C^{-1} Z` is releasing C times the sums plus Z, so a client that
takes part k times, never within b rounds, changes that by at most :math:`\sqrt{k} \, |c|` norms:
its columns of C have no common row. Later sums may depend on earlier releases, as Z is Gaussian.

Denisov, McMahan, Rush, Smith and Thakurta, NeurIPS 2022, theorem 2.1; Choquette-Choo, Ganesh,
McKenna, McMahan, Rush, Thakurta and Xu, "(Amplified) banded matrix factorization", NeurIPS 2023.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.extend import RoundWeights, validated
from fcojax.privacy.noise import key_of
from fcojax.robust.mass import number
from fcojax.types import Array, Count, Key


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
      Fichtenberger, Henzinger and Upadhyay, "Constant matters", ICML 2023, equation (2).
    """
    bands = [1.0]
    for k in range(1, num_bands):
        bands.append(bands[-1] * (2 * k - 1) / (2 * k))
    return tuple(bands)


@dataclasses.dataclass(frozen=True)
class BandedMean:
    """The sum of clipped uploads, and independent noise of its shape; see ``Uplink.finish``.

    Attributes:
      noise: the noise multiplier.
      clip: the clipping norm.
      bands: of the strategy.
    """

    noise: Any
    clip: Any
    bands: tuple[float, ...]

    def __call__(self, hparams: Any, total: list, weights: RoundWeights, key: Key) -> tuple:
        """Return the sum, the deviation of its noise, Gaussians, and the denominator."""
        deviation = number(hparams, self.noise) * number(hparams, self.clip) * weights.largest
        keys = jax.random.split(key_of(hparams, key), max(1, len(total)))[: len(total)]
        whole = [leaf * weights.cohort_weight.astype(leaf.dtype) for leaf in total]
        drawn = [
            jax.random.normal(key, leaf.shape, leaf.dtype)
            for leaf, key in zip(total, keys, strict=True)
        ]
        return whole, deviation, drawn, weights.expected_weight


def with_bands(mean: BandedMean) -> dict[str, Any]:
    """Return the fields of an uplink whose memory is the noise of the last rounds, of deviation 1.

    Args:
      mean: what is added up and drawn in a round.
    """
    first, *later = mean.bands

    def memory(zeros):
        dtypes = [tree.mean_dtype(leaf.dtype) for leaf in zeros]
        pairs = zip(zeros, dtypes, strict=True)
        return [jnp.zeros((len(later), *leaf.shape), dtype) for leaf, dtype in pairs]

    def recall(hparams, finished, past, fraction):
        whole, deviation, drawn, denominator = finished
        noise = [one(normal, before) for normal, before in zip(drawn, past, strict=True)]
        sums = [
            (leaf + deviation.astype(leaf.dtype) * own) / denominator.astype(leaf.dtype)
            for leaf, own in zip(whole, noise, strict=True)
        ]
        kept = [
            jnp.concatenate([own[None], before[:-1]])
            for own, before in zip(noise, past, strict=True)
        ]
        return sums, kept

    def one(normal: Array, before: Array) -> Array:
        taken = jnp.tensordot(jnp.asarray(later, before.dtype), before, axes=1)
        return (normal - taken) / first

    return {"finish": mean, "memory": memory, "recall": recall}
