"""Conditionals under ``vmap``: the branch that runs, and the one that is skipped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.xla.conditionals import cond_unbatched
from fcojax.xla.loops import batch_max


@pytest.mark.parametrize("conditions", [(True, True), (False, False), (True, False)])
def test_each_element_takes_its_own_branch(conditions):
    x, conditions = jnp.array([2.0, 3.0]), jnp.array(conditions)

    def value(x, condition):
        return cond_unbatched(condition, lambda: {"y": x**2}, lambda: {"y": -x})["y"]

    expected = np.where(conditions, x**2, -x)
    np.testing.assert_array_equal(jax.vmap(value)(x, conditions), expected)
    np.testing.assert_array_equal(jax.jit(jax.vmap(value))(x, conditions), expected)
    slopes = jax.vmap(jax.grad(value))(x, conditions)
    np.testing.assert_array_equal(slopes, np.where(conditions, 2 * x, -1))


def test_a_branch_that_no_element_takes_is_skipped():
    """The test would not end if the endless branch ran."""

    def endless():
        return jax.lax.while_loop(lambda x: x < 1, lambda x: x, jnp.zeros(()))

    no, yes = jnp.zeros(3, bool), jnp.ones(3, bool)
    one = jnp.ones(())
    assert jax.vmap(lambda c: cond_unbatched(c, endless, lambda: one))(no).tolist() == [1, 1, 1]
    assert jax.vmap(lambda c: cond_unbatched(c, lambda: one, endless))(yes).tolist() == [1, 1, 1]


def test_batch_max_is_over_all_maps():
    numbers = jnp.array([[1, 5], [7, 2]])
    found = jax.vmap(jax.vmap(lambda number: batch_max(number) + 0 * number))(numbers)
    assert (found == 7).all()
