"""Short slices of a long array."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.xla.loops import small_slice

LONG = np.arange(60.0).reshape(20, 3)


# One and four clients are read in a loop, 2000 by a gather.
@pytest.mark.parametrize("num_clients", [1, 4, 2000])
@pytest.mark.parametrize("size", [1, 5, 15])
def test_slices_are_correct(num_clients, size):
    starts = jnp.arange(num_clients) % (20 - size)
    found = jax.jit(jax.vmap(lambda start: small_slice(jnp.asarray(LONG), start, size)))(starts)
    np.testing.assert_array_equal(found, LONG[np.asarray(starts)[:, None] + np.arange(size)])


@pytest.mark.parametrize("mapped", [True, False])
def test_the_gradient_of_a_slice(mapped):
    def total(array):
        if mapped:
            return jnp.sum(jax.vmap(lambda start: small_slice(array, start, 2))(jnp.array([4, 5])))
        return jnp.sum(small_slice(array, jnp.array(4), 2))

    slope = jax.grad(total)(jnp.asarray(LONG))
    expected = np.zeros_like(LONG)
    expected[4:6] += 1
    if mapped:
        expected[5:7] += 1
    np.testing.assert_array_equal(slope, expected)
