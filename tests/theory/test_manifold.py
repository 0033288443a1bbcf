"""Bounds of the stationarity measure, the theorem's rates, and the floor of averaging."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.theory import manifold as theory
from tests.support import subspaces

pytestmark = pytest.mark.gate

TEN_STEPS = fcojax.local_steps(10)
Rates = fcojax.algorithms.fed_manifold.Hparams


@functools.partial(jax.jit, static_argnums=(2,))
def stationarity(x, length, loss=subspaces.pca):
    return theory.stationarity(loss, subspaces.svd_stiefel, subspaces.data(), x, length)


@functools.partial(jax.jit, static_argnums=(3,))
def drift_floor(data, x, client_lr, num_steps):
    return theory.drift_floor(subspaces.pca, subspaces.svd_stiefel, data, x, client_lr, num_steps)


def points():
    keys = jax.random.split(jax.random.key(0), 20)
    like = jnp.asarray(subspaces.start())
    return [subspaces.svd_stiefel.random_point(like, key) for key in keys]


def test_the_gradient_is_that_of_the_mean_covariance():
    gradient = jax.jit(theory.gradient, static_argnums=(0, 1))
    for x in points()[:3]:
        found = gradient(subspaces.pca, subspaces.svd_stiefel, subspaces.data(), x)
        np.testing.assert_allclose(found, subspaces.slope(np.asarray(x)), atol=1e-13)


@pytest.mark.parametrize("length", [0.02, 0.2, 0.5])
def test_the_measure_lies_between_its_bounds_on_the_stiefel_manifold(length):
    for x in points():
        slope = np.linalg.norm(subspaces.slope(np.asarray(x)))
        measure = float(stationarity(x, length))
        assert slope - length * slope**2 / 2 <= measure * (1 + 1e-12) <= slope * (1 + 2e-12)


def test_the_measure_vanishes_at_the_optimum_and_only_there():
    x = jnp.asarray(subspaces.optimum()[1])
    assert float(stationarity(x, 0.2)) <= 1e-12
    assert min(float(stationarity(y, 0.2)) for y in points()) > 0.1


@pytest.mark.slow
def test_the_mean_squared_measure_falls_at_least_like_one_over_the_rounds():
    """With full batches it is summable: twice the rounds give at most half the mean."""
    chosen = subspaces.algorithm("fed_manifold")
    seen, _ = subspaces.states(chosen, Rates(0.02), 100, work=TEN_STEPS)
    measures = jax.vmap(lambda x: stationarity(x, 0.2))(jnp.asarray(seen.server.point))
    means = np.cumsum(np.asarray(measures) ** 2) / np.arange(1, 101)
    slope = np.log(means[99] / means[49]) / np.log(2)
    assert slope == pytest.approx(-1, abs=1e-3)
    gap = subspaces.objective(subspaces.start()) - subspaces.optimum()[0]
    bounds = [theory.stationarity_bound(gap, 0.2, num_rounds) for num_rounds in range(1, 101)]
    assert (means <= bounds).all() and means[99] > bounds[99] / 50  # and not vacuous


def test_the_bound_has_a_term_for_the_start_and_one_for_the_noise():
    start = theory.stationarity_bound(3.0, 0.5, 100)
    assert start == 8 * 3 / 50
    noisy = functools.partial(theory.stationarity_bound, 3.0, 0.5, variance=2.0)
    floor = noisy(100, num_clients=4) - start
    assert floor == pytest.approx(64 * 2 / 4)
    # Clients, steps and examples lower the floor equally, and rounds do not.
    for more in ({"num_steps": 5}, {"batch_size": 5}):
        assert noisy(100, num_clients=4, **more) - start == pytest.approx(floor / 5)
    assert noisy(10**9, num_clients=4) == pytest.approx(floor)
    assert theory.stationarity_bound(3.0, 0.5, 100, leading=(1.0, 0.0)) == 3 / 50


@pytest.mark.slow
def test_the_floor_of_noise_falls_with_the_number_of_steps_and_with_the_batch():
    """With eta K = 0.2 fixed the log-log slopes in K and in b are -1."""

    def floor(client_lr, num_steps, batch_size):
        work = fcojax.local_steps(num_steps, batch_size, replace=True)
        seen, _ = subspaces.states(
            subspaces.algorithm("fed_manifold"), Rates(client_lr), 400, work=work
        )
        return np.mean(subspaces.slope_norms(seen.server.point[200:]) ** 2)

    in_steps = [floor(0.2 / num_steps, num_steps, 5) for num_steps in (5, 20)]
    in_batch = [floor(0.02, 10, batch_size) for batch_size in (5, 20)]
    for floors in (in_steps, in_batch):
        assert np.log(floors[1] / floors[0]) / np.log(4) == pytest.approx(-1, abs=0.12)


def test_the_floor_of_averaging_is_what_the_theory_says():
    """Its constant, and the floor of a stalled run."""
    x = jnp.asarray(subspaces.optimum()[1])
    floor = drift_floor(subspaces.data(), x, 0.01, 10)
    assert float(floor) / (0.01 * 9) == pytest.approx(0.13293, abs=1e-5)
    rates = fcojax.algorithms.r_fed_avg.Hparams(0.01, 1.0)
    chosen = subspaces.algorithm("r_fed_avg")
    seen, _ = subspaces.states(chosen, rates, 100, params=x, work=TEN_STEPS)
    assert subspaces.slope_norms(seen.server[-1:])[0] == pytest.approx(float(floor), rel=0.01)


def test_one_step_or_clients_alike_have_no_floor():
    x = jnp.asarray(subspaces.optimum()[1])
    assert drift_floor(subspaces.data(), x, 0.1, 1) == 0
    alike = fcojax.from_clients([np.concatenate(subspaces.clients())] * 2)
    floor = drift_floor(alike, x, 0.1, 10)
    assert float(floor) <= 1e-12
