"""Short slices of a long array, and an entry of each row."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fcojax.xla import jaxprs, rules
from fcojax.xla.loops import small_slice

LONG = np.arange(60.0).reshape(20, 3)


# One and four clients are read in a loop, 2000 by a gather.
@pytest.mark.parametrize("num_clients", [1, 4, 2000])
@pytest.mark.parametrize("size", [1, 5, 15])
def test_slices_are_correct(num_clients, size):
    starts = jnp.arange(num_clients) % (20 - size)
    found = jax.jit(jax.vmap(lambda start: small_slice(jnp.asarray(LONG), start, size)))(starts)
    np.testing.assert_array_equal(found, LONG[np.asarray(starts)[:, None] + np.arange(size)])


def test_the_gradient_of_a_slice():
    def total(array):
        return jnp.sum(jax.vmap(lambda start: small_slice(array, start, 2))(jnp.array([4, 5])))

    expected = np.zeros_like(LONG)
    expected[[4, 5, 6]] = [[1], [2], [1]]
    np.testing.assert_array_equal(jax.grad(total)(jnp.asarray(LONG)), expected)


LABELLED = {
    "optax": optax.softmax_cross_entropy_with_integer_labels,
    "filled": lambda z, y: jnp.take_along_axis(z, y[:, None], 1)[:, 0],
    "clipped": lambda z, y: jnp.take_along_axis(z, y[:, None], 1, mode="clip")[:, 0],
    "columns": lambda z, y: jnp.take_along_axis(z.T, y[None], 0)[0],
}


@pytest.mark.parametrize("labels", [[3, 0, -1], [9, -7, 2]])  # the second are out of bounds
@pytest.mark.parametrize("name", LABELLED)
def test_a_gpu_takes_the_score_of_a_label_without_a_scatter(name, labels):
    given = jnp.asarray(LONG[:3, :1] * [1.0, -2.0, 3.0, 0.5]), jnp.asarray(labels)

    def found(function):
        slope = jax.grad(lambda z, y: jnp.nansum(function(z, y) ** 3))
        program = jax.make_jaxpr(slope)(*given).jaxpr
        scatters = any("scatter" in str(each.primitive) for each in jaxprs.equations(program))
        return (function(*given), slope(*given)), scatters

    (expected, scatters), ours = found(LABELLED[name]), jaxprs.fast_inside_loops(LABELLED[name])
    assert scatters and found(ours)[1]  # on a CPU it is one
    with rules.pretend("cuda"):
        chex.assert_trees_all_equal(found(ours), (expected, False))
        # One entry of a long vector is read without the others.
        assert "gather" in str(jax.make_jaxpr(jaxprs.fast_inside_loops(jnp.take))(LONG[:, 0], 3))
