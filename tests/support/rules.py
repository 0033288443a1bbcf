"""Aggregators as functions of weighted points."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.uploads.contract import RoundWeights
from fcojax.uploads.stack import combined


@functools.partial(jax.jit, static_argnums=0)
def _mean(aggregator, points, shares, key):
    one, count = jnp.ones(()), jnp.asarray(len(shares))
    weights = RoundWeights(one, one, one, count, one, one)
    memory = aggregator.init([jnp.zeros_like(points[0])])
    return combined(aggregator, None, [points], shares, weights, memory, key)[0][0]


def robust_mean(aggregator, points, weights, key=None):
    """Return the mean of points in one round of clients with these weights, of any sum."""
    points, weights = jnp.asarray(points), jnp.asarray(weights)
    key = jax.random.key(0) if key is None else key
    return np.asarray(_mean(aggregator, points, weights / weights.sum(), key))
