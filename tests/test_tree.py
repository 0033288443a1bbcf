import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import tree


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_all_finite_detects_one_bad_entry(bad):
    good = {"a": jnp.arange(3.0), "b": (jnp.array(1e308), jnp.zeros(0), jnp.arange(2))}
    assert tree.all_finite(good)
    assert not tree.all_finite(good | {"a": good["a"].at[1].set(bad)})
    assert not tree.all_finite({"b": jnp.array(bad), "c": jnp.ones(())})


def test_integers_and_empty_trees_are_finite():
    assert tree.all_finite(jnp.arange(3)) and tree.all_finite(())


def test_scalars_take_the_dtype_of_the_leaf():
    x = {"half": jnp.ones(2, jnp.bfloat16), "double": jnp.ones(2, jnp.float64)}
    moved = tree.add_scaled(x, jnp.float32(0.5), tree.scale(2.0, x))
    assert moved["half"].dtype == jnp.bfloat16 and moved["double"].dtype == jnp.float64
    assert moved["double"].tolist() == [2.0, 2.0]


def test_inner_product_and_norm_run_over_all_leaves():
    x = {"a": jnp.array([3.0]), "b": jnp.array([[0.0, 4.0]])}
    assert tree.euclidean_norm(tree.scale(0.0, x)) == 0.0
    assert tree.norm(x) == 5.0 and tree.vdot(x, tree.scale(2.0, x)) == 50.0
    assert tree.num_bytes(x) == 24


def test_where_ignores_a_nan_that_is_not_selected():
    chosen = tree.where(jnp.array(True), jnp.array(1.0), jnp.array(jnp.nan))
    assert chosen == 1.0


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("value", [True, 3, 0.1, np.float64(0.1), np.arange(3), [1.0, 2.0]])
@pytest.mark.parametrize("dtype", [jnp.float32, float])
def test_as_array_is_that_of_jax(value, dtype, x64):
    with jax.enable_x64(x64):
        found, expected = tree.as_array(value, dtype), jnp.asarray(value, dtype)
        assert np.array_equal(found, expected) and found.aval == expected.aval
        assert np.array_equal(jax.jit(lambda: tree.as_array(value, dtype))(), expected)
