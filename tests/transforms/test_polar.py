"""The polar factor: all methods, derivatives, and degenerate input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.transforms.manifolds.polar import polar, special_polar

pytestmark = pytest.mark.slow

METHODS = ("gram", "svd")


def matrix(shape, condition=None, seed=0):
    """Return a Gaussian matrix, or one with singular values from 1 to 1 / condition."""
    y = np.random.default_rng(seed).standard_normal(shape)
    if condition is None:
        return y
    left, _, right = np.linalg.svd(y, full_matrices=False)
    return left * np.geomspace(1, 1 / condition, shape[1]) @ right


def infeasibility(x):
    x = np.asarray(x, np.float64)
    return np.linalg.norm(x.T @ x - np.eye(x.shape[1]))


def excess(x, y):
    """Return the suboptimality of x as the factor of y: ``|y|_nuclear - <x, y>``, over ``|y|``."""
    y = np.asarray(y, np.float64)
    values = np.linalg.svd(y, compute_uv=False)
    return (values.sum() - np.sum(np.asarray(x, np.float64) * y)) / values[0]


@pytest.mark.parametrize("method", METHODS)
def test_ill_conditioned_and_badly_scaled_matrices(method):
    """Up to condition numbers above eps^(-1/2), 3e3 in float32, with a singular Gram matrix."""
    conditions = np.array([1e1, 1e2, 1e4, 1e6, 1e2, 1e2])
    scales = np.array([1.0, 1.0, 1.0, 1.0, 1e25, 1e-25])
    y = np.stack([s * matrix((20, 4), c) for s, c in zip(scales, conditions, strict=True)])
    batched = jax.jit(jax.vmap(lambda one: polar(one, method)))
    for one, x in zip(y, batched(jnp.asarray(y, jnp.float32)), strict=True):
        assert infeasibility(x) <= 2e-6
        assert excess(x, one) <= 1e-6
    for one, x in zip(y, batched(y), strict=True):
        assert infeasibility(x) <= 2e-13
        assert excess(x, one) <= 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_matrices_without_full_rank(method):
    low = matrix((8, 3))
    low[:, 2] = low[:, 0] - 2 * low[:, 1]
    column = np.zeros((8, 3))
    column[:, 1] = 1.0
    y = np.stack([matrix((8, 3)), low, column, np.zeros((8, 3))])
    x = jax.vmap(lambda one: polar(one, method))(y)
    for one, found in zip(y[:3], x[:3], strict=True):
        assert infeasibility(found) <= 1e-13
        assert excess(found, one) <= 1e-12
    np.testing.assert_array_equal(x[3], np.eye(8, 3))
    np.testing.assert_allclose(x[0], polar(jnp.asarray(y[0]), method), atol=1e-14)
    gradient = jax.vmap(jax.grad(lambda one: jnp.sum(polar(one, method) ** 3)))(y)
    assert np.all(np.isfinite(gradient))


def test_second_derivatives_on_and_off_the_manifold():
    """On the manifold all singular values are equal, so eigenvectors have no derivative."""
    x = polar(jnp.asarray(matrix((6, 3))))
    v, w = (jnp.asarray(matrix((6, 3), seed=seed)) for seed in (1, 2))

    def slope(y):
        return jax.jvp(polar, (y,), (v,))[1]

    second = jax.jit(lambda y: jax.jvp(slope, (y,), (w,))[1])
    hessian_row = jax.jit(jax.grad(lambda y: jnp.vdot(w, slope(y))))
    for y in (x, x + 0.2 * w):
        difference = (slope(y + 1e-5 * w) - slope(y - 1e-5 * w)) / 2e-5
        np.testing.assert_allclose(second(y), difference, atol=1e-7)
        step = 1e-5 * w
        along = (jnp.vdot(w, slope(y + step)) - jnp.vdot(w, slope(y - step))) / 2e-5
        np.testing.assert_allclose(jnp.vdot(hessian_row(y), w), along, atol=1e-7)


@pytest.mark.parametrize("determinant", [1, -1])
def test_special_polar_beats_other_rotations(determinant):
    y = matrix((4, 4), seed=3)
    y[0] *= determinant * np.sign(np.linalg.det(y))
    x = np.asarray(special_polar(jnp.asarray(y)))
    assert infeasibility(x) <= 1e-13
    assert np.linalg.det(x) > 0
    left, values, right = np.linalg.svd(y)
    best = values.sum() - (0 if determinant == 1 else 2 * values[-1])
    np.testing.assert_allclose(np.sum(x * y), best, rtol=1e-13)
    v = jnp.asarray(matrix((4, 4), seed=4))
    ahead, behind = special_polar(y + 1e-5 * v), special_polar(y - 1e-5 * v)
    slope = jax.jvp(special_polar, (jnp.asarray(y),), (v,))[1]
    np.testing.assert_allclose(slope, (ahead - behind) / 2e-5, atol=1e-6)


def test_rotation_nearest_to_zero_and_to_a_reflection_is_finite():
    for y in (jnp.zeros((3, 3)), -jnp.eye(3)):
        x = special_polar(y)
        assert infeasibility(x) <= 1e-14
        assert np.linalg.det(x) > 0
        assert np.all(np.isfinite(jax.grad(lambda y: special_polar(y)[0, 1])(y)))
