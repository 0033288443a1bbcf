import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import linear_model

from fcojax.problems import lasso
from fcojax.problems.building import from_clients
from fcojax.problems.problem import Problem
from fcojax.reference import fista, optimum
from fcojax.transforms import l1, zero
from tests.support import federations


def test_restarts_make_an_ill_conditioned_quadratic_converge_linearly():
    curvature = jnp.logspace(0, -5, 20)
    objective = lambda w, _: 0.5 * jnp.sum(curvature * (w - 1) ** 2)  # noqa: E731
    limits = {"tolerance": 1e-9, "max_steps": 20_000}
    solution = fista(objective, zero(), 0.0, jnp.zeros(20), **limits)
    assert solution.converged and solution.num_steps < 10_000
    np.testing.assert_allclose(solution.params, 1.0, atol=1e-3)


RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((60, 20)) * np.logspace(0, -1.5, 20)
TARGETS = FEATURES[:, :5].sum(axis=1) + 0.1 * RNG.standard_normal(60)
L1, STRENGTH = l1(), 0.05


def half_mean_square(w, data):
    x, y = data
    return jnp.mean((x @ w - y) ** 2) / 2


@functools.cache
def lasso_of_scikit_learn():
    theirs = linear_model.Lasso(alpha=STRENGTH, fit_intercept=False, tol=1e-14, max_iter=10**6)
    return theirs.fit(FEATURES, TARGETS).coef_


@pytest.fixture(scope="module")
def pooled():
    """Return ``c -> optimum`` of a problem whose features and targets are multiplied by c."""
    clients = [{"x": FEATURES[m::3], "y": TARGETS[m::3]} for m in range(3)]

    def loss(w, rows):
        return (rows["x"] @ w - rows["y"]) ** 2 / 2

    def start(key):
        return jnp.zeros(20)

    @functools.cache
    def solve(c):
        train = from_clients([{name: c * v for name, v in client.items()} for client in clients])
        return optimum(Problem(loss, train, None, start), L1, c**2 * STRENGTH)

    return solve


@pytest.mark.parametrize("c", [1e-8, 1e-3, 1e8])
def test_the_optimum_does_not_depend_on_the_unit_of_the_data(pooled, c):
    found, usual = pooled(c), pooled(1.0)
    assert found.converged and found.residual <= 1e-8
    np.testing.assert_allclose(found.params, lasso_of_scikit_learn(), atol=1e-7)
    assert 0 < np.count_nonzero(found.params) < 20  # exact zeros, not small numbers
    np.testing.assert_allclose(found.params, usual.params, atol=1e-12)
    assert found.num_steps == usual.num_steps < 100
    assert found.objective / c**2 == pytest.approx(usual.objective, rel=1e-12)


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40])
def test_the_optimum_does_not_depend_on_the_unit_of_the_parameters(unit):
    """Features divided by a power of two multiply the minimiser by it, without rounding."""
    first, second = (
        fista(half_mean_square, L1, STRENGTH / u, jnp.zeros(20), (FEATURES / u, TARGETS))
        for u in (1.0, unit)
    )
    assert np.array_equal(second.params, unit * first.params)
    assert second.converged and second.residual == first.residual


@pytest.mark.parametrize("max_steps", [2, 10, 1000])
@pytest.mark.parametrize("strength", [0.0, 1e-3, STRENGTH, 1.0])
def test_the_certificate_bounds_the_violation_of_optimality(strength, max_steps):
    """Converged or not, the smallest subgradient of the objective is at most the residual."""
    context, start = (FEATURES, TARGETS), jnp.zeros(20)
    found = fista(half_mean_square, L1, strength, start, context, max_steps=max_steps)
    w = np.asarray(found.params)
    hessian = FEATURES.T @ FEATURES / 60
    slope = hessian @ w - FEATURES.T @ TARGETS / 60
    nearest = np.where(w != 0, strength * np.sign(w), np.clip(-slope, -strength, strength))
    violation = np.abs(slope + nearest).max()
    unit = max(np.abs(slope).max(), strength, np.abs(hessian @ np.abs(w)).max())
    assert violation <= (1 + 1e-9) * found.residual * unit + 1e-15
    assert found.converged == (found.residual <= 1e-8)
    assert found.converged or found.num_steps == max_steps


def test_the_step_grows_again_as_the_curvature_falls():
    """The objective falls from 5e8 at the start to 1 at the minimiser."""
    found = fista(lambda w, _: jnp.sum(jnp.exp(w) - w), zero(), 0.0, jnp.full(2, 20.0))
    assert found.converged and found.num_steps < 1000
    np.testing.assert_allclose(found.params, 0.0, atol=1e-6)


def test_an_optimum_is_recognised_at_the_start():
    best = np.linalg.lstsq(FEATURES, TARGETS)[0]
    for start, strength in ((best, 0.0), (lasso_of_scikit_learn(), STRENGTH)):
        found = fista(half_mean_square, L1, strength, jnp.asarray(start), (FEATURES, TARGETS))
        assert found.converged and found.num_steps <= 2
        np.testing.assert_allclose(found.params, start, atol=1e-9)


def test_data_that_are_not_finite_are_not_solved():
    broken = FEATURES * np.where(np.arange(20) == 3, np.nan, 1)
    found = fista(half_mean_square, L1, STRENGTH, jnp.zeros(20), (broken, TARGETS))
    assert not found.converged


def test_the_solution_goes_into_a_float32_program_without_a_warning():
    with jax.enable_x64(False):
        problem = lasso(num_clients=2, num_examples=10, dim=3, num_true=2)
        found = optimum(problem, federations.kernel_l1(), 0.5)
        assert {leaf.dtype for leaf in jax.tree.leaves(found.params)} == {np.dtype(np.float64)}
        losses = jax.jit(problem.loss)(found.params, problem.train.examples)
        assert losses.dtype == jnp.float32
        moved = jax.tree.map(lambda leaf: jnp.asarray(leaf) + 1, found.params)
        assert {leaf.dtype for leaf in jax.tree.leaves(moved)} == {np.dtype(np.float32)}
