"""Decompositions, one at a time on a CPU and batched on others, equal those of jax.numpy."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.transforms import nuclear
from fcojax.xla import rules
from fcojax.xla.linalg import singular_values, solve, symmetric_eigh, thin_svd

BATCH = jax.random.normal(jax.random.key(0), (3, 5, 4), jnp.float64)
SYMMETRIC = BATCH.mT @ BATCH
CASES = {
    "thin svd": (thin_svd, lambda x: tuple(jnp.linalg.svd(x, full_matrices=False)), BATCH),
    "values": (singular_values, lambda x: jnp.linalg.svd(x, compute_uv=False), BATCH),
    "eigh": (symmetric_eigh, lambda x: tuple(jnp.linalg.eigh(x)), SYMMETRIC),
}


def compiled(function, *args):
    """Compile one program in place of one for each operation."""
    return jax.jit(lambda *args: function(*args))(*args)


@jax.jit
def solve_on_tpu(matrix, right):
    with rules.pretend("tpu"):
        return solve(matrix, right)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_equal_those_of_jax_numpy(name):
    ours, theirs, x = CASES[name]
    chex.assert_trees_all_close(ours(x[0]), theirs(x[0]), rtol=1e-12)
    chex.assert_trees_all_close(jax.vmap(ours)(x), jax.vmap(theirs)(x), rtol=1e-12)
    nested = x.reshape(3, 1, *x.shape[1:])
    chex.assert_trees_all_close(
        jax.vmap(jax.vmap(ours))(nested), jax.vmap(jax.vmap(theirs))(nested), rtol=1e-12
    )

    def total(function):
        leaves = jax.tree.leaves
        return lambda x: sum(jnp.sum(leaf**3) for leaf in leaves(jax.vmap(function)(x)))

    chex.assert_trees_all_close(
        jax.grad(total(ours))(x), jax.grad(total(theirs))(x), rtol=1e-10, atol=1e-12
    )


def largest_batch(function, x):
    """Return the largest batch of any decomposition in the program."""
    program = str(jax.make_jaxpr(jax.vmap(function))(x))
    lines = [line for line in program.splitlines() if "svd[" in line or "eigh[" in line]
    return max(3 if f":f64[{x.shape[0]}," in line else 1 for line in lines)


@pytest.mark.parametrize("name", CASES)
def test_decompositions_are_batched_on_an_accelerator_only(name):
    ours, theirs, x = CASES[name]
    assert largest_batch(theirs, x) == 3
    assert largest_batch(ours, x) == 1
    with rules.pretend("cuda"):
        assert largest_batch(ours, x) == 3


@pytest.mark.parametrize("shape", [(5, 4), (3, 5), (41, 40)])
def test_a_spectral_prox_has_the_same_result_and_rank_on_an_accelerator(shape):
    def prox(x):
        return nuclear().prox(x, 1.0, 1.5)

    x = jax.random.normal(jax.random.key(1), (4, *shape), jnp.float64)
    bad = jnp.stack([x[0].at[1, 2].set(value) for value in (jnp.nan, jnp.inf)])
    expected = compiled(jax.vmap(prox), x)
    with rules.pretend("cuda"):
        found = compiled(jax.vmap(prox), jnp.concatenate([x, bad]))
    assert jnp.isnan(found[4:, 1, 2]).all()
    found = found[:4]
    chex.assert_trees_all_close(found, expected, rtol=1e-12, atol=1e-12)
    ranks = np.linalg.matrix_rank(expected)
    assert (np.linalg.matrix_rank(found) == ranks).all() and (ranks < min(shape)).any()


@pytest.mark.parametrize("right", [jnp.arange(4.0), jnp.eye(4)], ids=["vector", "matrix"])
def test_a_linear_system_needs_no_lu_decomposition_in_float64_on_a_tpu(right):
    def solved(matrices):
        return jax.vmap(lambda matrix: solve(matrix, right.astype(matrix.dtype)))(matrices)

    def program(matrices):
        return str(jax.make_jaxpr(solved)(matrices))

    matrices = BATCH[:, :4]
    expected = np.linalg.inv(matrices) @ right
    assert "lu_solve" in program(matrices)
    with rules.pretend("tpu"):
        assert "lu_solve" not in program(matrices)
        assert "lu_solve" in program(matrices.astype(jnp.float32))
        # The last one is singular, for which callers test isfinite.
        found = compiled(solved, jnp.concatenate([matrices, jnp.ones((1, 4, 4))]))
        slopes = compiled(jax.jacobian(solved), matrices)
    chex.assert_trees_all_close(found[:-1], expected, rtol=1e-12)
    assert jnp.isnan(found[-1]).all()
    chex.assert_trees_all_close(compiled(solved, matrices), expected, rtol=1e-12)
    expected = compiled(jax.jacobian(solved), matrices)
    chex.assert_trees_all_close(slopes, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", [2, 8, 16])
def test_a_system_that_lacks_one_direction_is_nan_by_qr(size):
    centring = np.eye(size) - np.ones((size, size)) / size
    assert jnp.isnan(solve_on_tpu(centring, np.arange(float(size)))).all()
    assert jnp.isnan(solve_on_tpu(np.zeros((size, size)), np.ones(size))).all()
    assert solve_on_tpu(np.zeros((0, 0)), np.zeros(0)).size == 0


@pytest.mark.parametrize("size", [3, 10, 20])
@pytest.mark.parametrize("condition", [1e4, 1e8, 1e10, 1e12])
def test_an_ill_conditioned_system_by_qr_is_as_good_as_by_lu(size, condition):
    rng = np.random.default_rng(size)
    left, right = (np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2))
    matrix = left * np.logspace(0, -np.log10(condition), size) @ right
    truth = rng.standard_normal((size, 2)) * np.array([1.0, 1e9])  # columns of different norms
    found = np.asarray(solve_on_tpu(matrix, matrix @ truth))
    errors = np.abs(found / truth - 1).max(axis=0)
    assert (errors < 100 * condition * np.finfo(float).eps).all(), errors


@pytest.mark.parametrize("name", ["thin svd", "values"])
def test_float32_is_decomposed_in_float64_on_a_tpu_where_float64_is_enabled(name):
    ours, theirs, x = CASES[name]
    x = x[0].astype(jnp.float32)
    with rules.pretend("tpu"):
        found, program = compiled(ours, x), str(jax.make_jaxpr(ours)(x))
        with jax.enable_x64(False):
            assert ":f64" not in str(jax.make_jaxpr(ours)(x))
    assert ":f64[4] " in program and ":f64" not in str(jax.make_jaxpr(ours)(x))
    expected = compiled(theirs, x)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.dtype == jnp.float32
        chex.assert_trees_all_close(abs(one), abs(other), atol=1e-5)
