import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import linear_model

from fcojax.engine.reference import fista, optimum
from fcojax.problems.clients import from_clients
from fcojax.problems.problem import population_loss
from fcojax.transforms import l1, zero
from tests import federations


def test_it_finds_the_lasso_of_another_library():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60, 8)), rng.standard_normal(60)
    strength = 0.15

    def half_mean_square(w, data):
        return 0.5 * jnp.mean((data[0] @ w - data[1]) ** 2)

    ours = fista(half_mean_square, l1(), strength, jnp.zeros(8), (x, y), tolerance=1e-11)
    theirs = linear_model.Lasso(alpha=strength, fit_intercept=False, tol=1e-14, max_iter=10**6)
    assert ours.converged
    np.testing.assert_allclose(ours.params, theirs.fit(x, y).coef_, atol=1e-9)
    assert (np.asarray(ours.params) == 0).any()  # exact zeros, not small numbers


def test_the_residual_is_the_optimality_condition():
    """At the solution, grad F is -scale * sign(w) on the support and at most scale off it."""
    data, scale = from_clients(federations.clients()), 0.4

    def smooth(w, data):
        return population_loss(federations.loss, w, data)

    solution = fista(
        smooth, federations.kernel_l1(), scale, federations.start(), data, tolerance=1e-10
    )
    gradient = jax.grad(smooth)(solution.params, data)
    w, slope = solution.params["kernel"], gradient["kernel"]
    on = np.asarray(w) != 0
    assert on.sum() > 0
    np.testing.assert_allclose(slope[on], -scale * np.sign(w[on]), atol=1e-9)
    assert (np.abs(slope[~on]) <= scale + 1e-9).all()
    assert abs(float(gradient["bias"])) < 1e-9


def test_an_ill_conditioned_quadratic_converges_linearly_thanks_to_restarts():
    curvature = jnp.logspace(0, -5, 20)
    solution = fista(
        lambda w, _: 0.5 * jnp.sum(curvature * (w - 1) ** 2), zero(), 0.0, jnp.zeros(20),
        tolerance=1e-9, max_steps=20_000,
    )  # fmt: skip
    assert solution.converged and solution.num_steps < 10_000
    np.testing.assert_allclose(solution.params, 1.0, atol=1e-3)


def test_it_says_when_it_gave_up():
    solution = fista(lambda w, _: jnp.sum((w - 1) ** 4), zero(), 0.0, jnp.zeros(3), max_steps=3)
    assert not solution.converged and solution.num_steps == 3


def test_float32_data_are_solved_in_float64():
    from fcojax.problems.lasso import lasso

    problem = lasso(num_clients=4, num_examples=10, dim=6, num_true=3)
    solution = optimum(problem, federations.kernel_l1(), 0.5)
    assert solution.params["kernel"].dtype == jnp.float64
    assert solution.converged and float(solution.residual) <= 1e-8
    in_float64 = jax.tree.map(lambda leaf: leaf.astype(float), problem.train.examples)
    train = dataclasses.replace(problem.train, examples=in_float64)
    assert float(solution.objective) == pytest.approx(
        float(population_loss(problem.loss, solution.params, train))
        + 0.5 * float(jnp.abs(solution.params["kernel"]).sum()),
        rel=1e-12,
    )
