"""Means of points on a manifold: half the squared distances as losses."""

import jax
import jax.numpy as jnp

import fcojax


def loss_on(manifold):
    """Return half the squared distance of x to each point; its gradient at x is -log(x, a)."""

    def half_square(x, a):
        tangent = manifold.log(a, x)
        return 0.5 * jnp.vdot(tangent, manifold.metric(a, tangent))

    return lambda x, points: jax.vmap(half_square, (None, 0))(x, points)


def ran(algorithm, hparams, start, data, plan, num_rounds):
    """Return the model after these rounds."""
    key = jax.random.key(0)
    return fcojax.run(algorithm, hparams, start, data, key, plan, num_rounds=num_rounds)[0]
