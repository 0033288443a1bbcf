"""Steps before a robust mean, which make uploads of honest clients more similar."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax.arguments import factory
from fcojax.engine.hparams import number
from fcojax.robust.mass import nearest
from fcojax.robust.rule import Mixing
from fcojax.types import Count, Probability


@factory
def bucketing(size: Count) -> Mixing:
    """Return the step that replaces random groups of points by their means.

    Args:
      size: points in a group; the last group may be smaller.

    Example:
      >>> mixed, _ = bucketing(2).mix(
      ...     None, jnp.array([[0.0], [2.0]]), jnp.array([0.75, 0.25]), jax.random.key(0))
      >>> mixed.tolist()
      [[0.5]]

    References:
      Karimireddy, He and Jaggi, "Byzantine-robust learning on heterogeneous datasets via
      bucketing", ICLR 2022.
    """

    def mix(hparams, points, weights, key):
        n = points.shape[0]
        order = jax.random.permutation(key, n)
        order = order[jnp.argsort(weights[order] <= 0)]  # present points come first
        group = jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32) // size)
        num_groups = -(-n // size)
        mass = jnp.zeros(num_groups, weights.dtype).at[group].add(weights)
        sums = jnp.zeros((num_groups, points.shape[1]), points.dtype)
        sums = sums.at[group].add(weights[:, None] * points)
        return sums / jnp.where(mass > 0, mass, 1)[:, None], mass

    return Mixing(f"bucketing({size})", mix)


@factory
def nearest_neighbour_mixing(share: Probability | Callable) -> Mixing:
    """Return the step that replaces each point by the mean of its nearest neighbours.

    Args:
      share: share of the weight that does not count as nearest.

    Example:
      >>> points = jnp.array([[0.0], [1.0], [2.0], [9.0]])
      >>> mixed, _ = nearest_neighbour_mixing(0.25).mix(None, points, jnp.ones(4) / 4, None)
      >>> mixed.tolist()
      [[1.0], [1.0], [1.0], [4.0]]

    References:
      Allouah, Farhadkhani, Guerraoui, Gupta, Pinot and Stephan, "Fixing by
      mixing: a recipe for optimal Byzantine ML under heterogeneity", AISTATS 2023.
    """

    def mix(hparams, points, weights, key):
        _, near = nearest(points, weights, 1 - number(hparams, share))
        mass = jnp.sum(near, axis=1, keepdims=True)
        return near @ points / jnp.where(mass > 0, mass, 1), weights

    return Mixing(f"nearest_neighbour_mixing({share})", mix)
