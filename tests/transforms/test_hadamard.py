"""Positive definite matrices against scipy, closed forms, and their means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from scipy.linalg import expm, logm, sqrtm

from fcojax.transforms import spd, transport
from fcojax.transforms.manifolds.manifold import ambient_norm

pytestmark = pytest.mark.slow


def matrices(number, dim=4):
    roots = np.random.default_rng(0).standard_normal((number, dim, dim))
    return roots @ np.swapaxes(roots, 1, 2) + 0.1 * np.eye(dim)


def test_positive_definite_matrices_agree_with_matrix_functions_of_scipy():
    x, y, u = matrices(3)
    root, back = sqrtm(x), np.linalg.inv(sqrtm(x))
    np.testing.assert_allclose(spd().exp(x, u), root @ expm(back @ u @ back) @ root, rtol=1e-9)
    tangent = spd().log(x, y)
    np.testing.assert_allclose(tangent, root @ logm(back @ y @ back) @ root, rtol=1e-9)
    move = sqrtm(y @ np.linalg.inv(x))
    np.testing.assert_allclose(transport(spd(), x, y, u), move @ u @ move.T, rtol=1e-9)
    distance = np.linalg.norm(np.log(scipy.linalg.eigvalsh(y, x)))
    assert ambient_norm(spd(), x, tangent) == pytest.approx(distance, rel=1e-11)
    basis = np.random.default_rng(1).standard_normal((4, 4))  # other variables change nothing
    moved = spd().log(basis @ x @ basis.T, basis @ y @ basis.T)
    np.testing.assert_allclose(moved, basis @ tangent @ basis.T, rtol=0, atol=1e-9)


def test_ill_conditioned_matrices_in_single_precision():
    """Quotients have eigenvalues of 1e-10 to 1e10; the bound is rounding times the condition."""
    rng, values = np.random.default_rng(0), np.geomspace(1, 1e-5, 5)
    for _ in range(4):
        bases = np.linalg.qr(rng.standard_normal((2, 5, 5)))[0]
        x, y = jnp.asarray((bases * values) @ np.swapaxes(bases, 1, 2), jnp.float32)
        distance = np.linalg.norm(np.log(scipy.linalg.eigvalsh(*np.asarray([y, x], float))))
        tangent = spd().log(x, y)
        assert ambient_norm(spd(), x, tangent) == pytest.approx(distance, rel=2e-3)
        np.testing.assert_allclose(spd().exp(x, tangent), y, rtol=0, atol=1e5 * 1.2e-7)


@pytest.mark.parametrize("unit", [1e-26, 1e26])
def test_norms_of_matrices_in_any_unit(unit):
    x = unit * jnp.eye(2, dtype=jnp.float32)
    assert ambient_norm(spd(), x, spd().log(x, 4 * x)) == pytest.approx(np.log(4) * 2**0.5)
    assert (jax.grad(lambda v: ambient_norm(spd(), x, v))(0 * x) == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_projected_matrices_have_logarithms(dtype):
    for y in (np.zeros((3, 3)), -np.eye(3), np.diag([1e6, 1.0, -1.0]), np.ones((3, 3))):
        x = spd().project(jnp.asarray(y, dtype))
        assert x.dtype == dtype and np.all(np.isfinite(spd().log(x, jnp.eye(3, dtype=dtype))))
