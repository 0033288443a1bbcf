"""Branches under ``vmap``: what is taken, and what is not run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.branches import either, largest_of_all


@pytest.mark.parametrize("conditions", [(True, True), (False, False), (True, False)])
def test_each_run_has_the_branch_of_its_own(conditions):
    x, conditions = jnp.array([2.0, 3.0]), jnp.array(conditions)

    def value(x, condition):
        return either(condition, lambda: {"y": x**2}, lambda: {"y": -x})["y"]

    wanted = np.where(conditions, x**2, -x)
    np.testing.assert_array_equal(jax.vmap(value)(x, conditions), wanted)
    np.testing.assert_array_equal(jax.jit(jax.vmap(value))(x, conditions), wanted)
    slopes = jax.vmap(jax.grad(value))(x, conditions)
    np.testing.assert_array_equal(slopes, np.where(conditions, 2 * x, -1))


def test_what_no_run_wants_is_not_run():
    """A branch without an end would never come back."""

    def endless():
        return jax.lax.while_loop(lambda x: x < 1, lambda x: x, jnp.zeros(()))

    no, yes = jnp.zeros(3, bool), jnp.ones(3, bool)
    one = jnp.ones(())
    assert jax.vmap(lambda c: either(c, endless, lambda: one))(no).tolist() == [1, 1, 1]
    assert jax.vmap(lambda c: either(c, lambda: one, endless))(yes).tolist() == [1, 1, 1]


def test_the_largest_is_that_of_all_maps():
    numbers = jnp.array([[1, 5], [7, 2]])
    found = jax.vmap(jax.vmap(lambda number: largest_of_all(number) + 0 * number))(numbers)
    assert (found == 7).all()
