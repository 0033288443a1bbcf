"""Skeleton of a penalty: a weighted l1 norm. Replace value and prox."""

import jax.numpy as jnp

from fcojax.transforms import Penalty, soft_threshold


def my_penalty(weights):
    """psi(x; scale) = scale * sum_i weights_i |x_i|; no weight is negative."""

    def value(x, scale):
        return scale * jnp.sum(weights * jnp.abs(x))

    def prox(v, step, scale):
        """Return argmin_x step * value(x, scale) + |x - v|^2 / 2."""
        return soft_threshold(v, step * scale * weights)

    return Penalty(value, prox)
