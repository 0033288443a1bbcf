"""Gaussian noise on a sum, with a key of its own and a denominator that tells nothing."""

from typing import Any

import jax
import jax.numpy as jnp

from fcojax.extend import RoundWeights
from fcojax.types import Array, Key

# Folded into the key of a round's mean, which other uplinks draw from too.
_NOISE = 0x6E6F6973


def key_of(hparams: Any, key: Key) -> Key:
    """Return the key of a round's noise, which differs between hyperparameters.

    The difference of two releases with the same noise has none.

    Args:
      hparams: the hyperparameters of the round.
      key: of the mean of this round.
    """
    key = jax.random.fold_in(key, _NOISE)
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(hparams)]
    wide = [leaf if leaf.dtype.itemsize >= 4 else leaf.astype(jnp.float32) for leaf in leaves]
    words = [jax.lax.bitcast_convert_type(leaf, jnp.uint32).ravel() for leaf in wide]
    if not words:
        return key

    def fold(key, word):
        return jax.random.fold_in(key, word), None

    return jax.lax.scan(fold, key, jnp.concatenate(words))[0]


def with_fixed_denominator(total: list, deviation: Array, weights: RoundWeights, key: Key) -> list:
    """Return the sum over clients with noise, divided by what takes part on average.

    Args:
      total: the sum, each client times its share of the cohort's weight.
      deviation: of the noise on the sum of clients times their weights.
      weights: of the round.
      key: of the noise.
    """

    def one(leaf, key):
        whole = leaf * weights.cohort_weight.astype(leaf.dtype)
        return with_noise(whole, deviation, key) / weights.expected_weight.astype(leaf.dtype)

    keys = jax.random.split(key, max(1, len(total)))
    return [one(leaf, key) for leaf, key in zip(total, keys[: len(total)], strict=True)]


def with_noise(leaf: Array, deviation: Array, key: Key) -> Array:
    """Return an array with independent Gaussian noise on each entry.

    Args:
      leaf: the array.
      deviation: of the noise.
      key: of the noise.
    """
    return leaf + deviation.astype(leaf.dtype) * jax.random.normal(key, leaf.shape, leaf.dtype)
