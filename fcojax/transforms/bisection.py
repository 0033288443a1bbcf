"""Bisection for the smallest strength at which zero is a minimiser."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax.types import Array

_NUM_BISECTIONS = 60  # enough for the last bit of a float64


def least_scale(stays_zero: Callable[[Array], Array], high: Array) -> Array:
    """Return the smallest scale in [0, high] with ``stays_zero(scale)``, by bisection."""

    def bisect(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        enough = stays_zero(middle)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    start = jnp.zeros_like(high), high
    return jax.lax.fori_loop(0, _NUM_BISECTIONS, bisect, start)[1]
