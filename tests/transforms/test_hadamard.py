"""Positive definite matrices against scipy, closed forms, and their means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from scipy.linalg import expm, logm, sqrtm

import fcojax
from fcojax.theory.manifold import stationarity
from fcojax.transforms import spd, transport
from fcojax.transforms.manifolds.manifold import ambient_norm
from tests.support import frechet

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
    """Their quotients have eigenvalues of 1e-10 to 1e10, beyond the digits of float32."""
    rng, values = np.random.default_rng(0), np.geomspace(1, 1e-5, 5)
    for _ in range(4):
        bases = np.linalg.qr(rng.standard_normal((2, 5, 5)))[0]
        x, y = jnp.asarray((bases * values) @ np.swapaxes(bases, 1, 2), jnp.float32)
        distance = np.linalg.norm(np.log(scipy.linalg.eigvalsh(*np.asarray([y, x], float))))
        tangent = spd().log(x, y)
        assert ambient_norm(spd(), x, tangent) == pytest.approx(distance, rel=2e-3)
        np.testing.assert_allclose(spd().exp(x, tangent), y, rtol=0, atol=2e-3)


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


def test_points_are_square_matrices():
    with pytest.raises(ValueError, match="pass a square matrix"):
        spd().random_point(jnp.ones(3), jax.random.key(0))


def mean_of(manifold, points, weights=None):
    """Return the mean of points, one for each client, by full Riemannian steps."""
    algorithm = fcojax.algorithms.r_fed_avg(frechet.loss_on(manifold), manifold)
    data = fcojax.from_clients([np.asarray(point)[None] for point in points], weights)
    hparams = algorithm.hparams_type(client_lr=1.0)
    return frechet.ran(algorithm, hparams, points[0], data, fcojax.local_steps(1), 60)


def test_means_of_positive_definite_matrices_have_their_closed_forms():
    a, b = matrices(2, dim=3)
    root, back = sqrtm(a), np.linalg.inv(sqrtm(a))
    between = root @ sqrtm(back @ b @ back) @ root  # A # B
    np.testing.assert_allclose(mean_of(spd(), [a, b]), between, rtol=1e-10)
    values, basis = np.random.default_rng(0).uniform(0.1, 10, (5, 3)), np.linalg.eigh(a)[1]
    weights = np.arange(1.0, 6.0)
    geometric = np.exp(np.average(np.log(values), axis=0, weights=weights))
    found = mean_of(spd(), (basis * values[:, None, :]) @ basis.T, weights)
    np.testing.assert_allclose(found, (basis * geometric) @ basis.T, rtol=0, atol=1e-12)


def test_methods_without_drift_reach_the_mean_and_averaging_stalls():
    manifold, start = spd(), np.eye(3)
    data = frechet.random_clients(manifold, start.shape, weights=np.array([1.0, 2.0, 0.5, 3.0]))
    loss, plan = frechet.loss_on(manifold), fcojax.local_steps(3)
    slopes = {}
    for name in ("fed_manifold", "r_fed_svrg", "r_fed_avg"):
        algorithm = getattr(fcojax.algorithms, name)(loss, manifold)
        hparams = algorithm.hparams_type(client_lr=0.1)
        x = frechet.ran(algorithm, hparams, start, data, plan, 300)
        slopes[name] = float(stationarity(loss, manifold, data, x, 1e-3))
    assert slopes["fed_manifold"] < 1e-11 and slopes["r_fed_svrg"] < 1e-11
    assert slopes["r_fed_avg"] > 1e-5
    a = manifold.random_point(start, jax.random.key(0))
    np.testing.assert_allclose(jax.grad(lambda x: loss(x, a[None])[0])(a), 0, atol=1e-13)
