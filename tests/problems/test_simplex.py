"""The log-optimal portfolio and the mixture, against a classical algorithm for both."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import problems
from fcojax.transforms import entropic_simplex
from tests.problems.families import in_float64, mean_loss


def by_expectation_maximisation(problem, num_steps=20_000):
    """Multiply w_i by the mean of r_i / r^T w; Cover's algorithm, and EM for mixtures."""
    r = np.asarray(problem.train.examples["r"], float)
    sizes = np.asarray(problem.train.sizes)
    row_weights = np.repeat(1 / sizes / len(sizes), sizes)
    w = np.full(r.shape[1], 1 / r.shape[1])
    for _ in range(num_steps):
        w = w * (row_weights / (r @ w) @ r)
    return w, -row_weights @ np.log(r @ w)


SMALL = {
    "portfolio": lambda: problems.portfolio(
        num_clients=4, num_examples=30, num_assets=6, volatility=0.2, drift_spread=0.05
    ),
    "mixture": lambda: problems.mixture(num_clients=4, num_examples=40),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_gap_bounds_suboptimality_and_is_zero_at_the_optimum(name):
    train = SMALL[name]().train
    problem = problems.simplex_weights(
        dataclasses.replace(train, examples=in_float64(train.examples))
    )
    measures = jax.jit(problem.measures)
    best, least = by_expectation_maximisation(problem)
    at_best = measures(jnp.asarray(best))
    assert at_best["duality_gap"] == pytest.approx(0, abs=2e-6)
    assert at_best["feasibility"] <= 1e-12
    assert int(at_best["support"]) == (best > 1e-6).sum() < best.size
    rng = np.random.default_rng(0)
    for w in rng.dirichlet(np.ones(best.size), 5):
        gap = measures(jnp.asarray(w))["duality_gap"]
        loss = float(mean_loss(problem.loss, jnp.asarray(w), problem.train))
        assert gap >= loss - least > 0


def test_entropic_dual_averaging_solves_the_mixture():
    problem = SMALL["mixture"]()
    _, least = by_expectation_maximisation(problem)
    algorithm = fcojax.algorithms.fed_dual_avg(problem.loss, entropic_simplex())
    hparams = fcojax.algorithms.fed_dual_avg.Hparams(client_lr=0.5, penalty_scale=1.0)
    w, _ = fcojax.run(
        algorithm,
        hparams,
        problem.init(None),
        problem.train,
        jax.random.key(0),
        num_rounds=300,
        plan=fcojax.local_steps(1),
    )
    assert float(mean_loss(problem.loss, w, problem.train)) - least < 1e-3


def test_infeasible_weights_are_measured():
    problem = SMALL["mixture"]()
    measures = jax.jit(problem.measures)
    found = measures(jnp.array([0.7, 0.5, -0.1, 0.2, 0.1], jnp.float32))
    assert found["feasibility"] == pytest.approx(0.4 + 0.1, abs=1e-6)
    error = measures(jnp.full(5, 0.2, jnp.float32))["error_l1"]
    assert error == pytest.approx(0.3 + 0.1 + 0.0 + 0.2 + 0.2, abs=1e-6)


def test_returns_have_the_stated_moments():
    options = {"num_clients": 30, "num_examples": 400, "num_assets": 8}
    problem = problems.portfolio(
        **options, drift=0.01, drift_spread=0.0, client_spread=0.02, volatility=0.1, correlation=0.4
    )
    logs = np.log(np.asarray(problem.train.examples["r"], float)).reshape(30, 400, 8)
    assert logs.mean() == pytest.approx(0.01, abs=0.005)
    assert logs.mean(axis=1).std() == pytest.approx(0.02, rel=0.2)
    within = logs - logs.mean(axis=1, keepdims=True)
    assert within.std() == pytest.approx(0.1, rel=0.02)
    correlations = np.corrcoef(within.reshape(-1, 8).T)[~np.eye(8, dtype=bool)]
    np.testing.assert_allclose(correlations, 0.4, atol=0.04)


def test_mixture_rows_are_likelihood_ratios():
    """With far components each example belongs to one, and shares follow the proportions."""
    problem = problems.mixture(
        num_clients=50,
        num_examples=100,
        proportions=(0.6, 0.0, 0.4),
        separation=100.0,
        concentration=5.0,
    )
    r = np.asarray(problem.train.examples["r"])
    assert (r.max(axis=1) == 1).all()
    assert (r > 0).all()
    shares = (r == 1).reshape(50, 100, 3).mean(axis=1)
    np.testing.assert_allclose(shares.mean(axis=0), [0.6, 0.0, 0.4], atol=0.1)
    # A Dirichlet share with mean q and concentration a has variance q (1 - q) / (a + 1).
    assert shares[:, 0].var() == pytest.approx(0.6 * 0.4 / 6, rel=0.5)
