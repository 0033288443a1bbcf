"""FedPD and FedDyn on nonconvex losses: stationary points, at the rate of the source.

The loss is robust regression with r^2 / (2 (1 + r^2)), whose curvature is between -1/4 and 1.
Clients differ in their rows and true weights, and the mean loss is concave along some direction.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms

pytestmark = pytest.mark.slow

NUM_CLIENTS, NUM_ROWS, DIM, NUM_ROUNDS = 8, 12, 5, 4000


def loss(x, rows):
    squared = (rows["a"] @ x - rows["b"]) ** 2
    return squared / (2 * (1 + squared))


@functools.cache
def population():
    rng = np.random.default_rng(3)
    clients = []
    for _ in range(NUM_CLIENTS):
        a = rng.standard_normal((NUM_ROWS, DIM))
        b = a @ (1 + rng.standard_normal(DIM)) + 0.1 * rng.standard_normal(NUM_ROWS)
        clients.append({"a": a, "b": b})
    return clients


def mean_loss(x):
    return sum(jnp.mean(loss(x, rows)) for rows in population()) / NUM_CLIENTS


def smoothness():
    """Return the largest L of a client; the curvature of a row's loss is at most |a|^2."""
    return max(np.linalg.eigvalsh(r["a"].T @ r["a"] / NUM_ROWS)[-1] for r in population())


@functools.cache
def squared_gradients(name, cohort_size=NUM_CLIENTS, **more):
    """Return |grad f|^2 after each round, with eta just below (sqrt(5) - 1) / (4 L)."""
    eta = 0.99 * (5**0.5 - 1) / (4 * smoothness())
    algorithm = getattr(algorithms, name)(loss)
    prox = {"prox_step": eta} if name != "fed_avg" else {}
    hparams = algorithm.hparams_type(client_lr=1 / (smoothness() + 1 / eta), **prox, **more)
    data = fcojax.from_clients(population())
    cohort = fcojax.everyone()
    if cohort_size < NUM_CLIENTS:
        cohort = fcojax.uniform_cohort(cohort_size=cohort_size)
    plan = fcojax.Plan(fcojax.local_steps(10), cohort)
    given = algorithm, hparams, jnp.zeros(DIM), data, jax.random.key(0), plan
    observe = lambda hparams, x, context: {"square": jnp.sum(jax.grad(mean_loss)(x) ** 2)}  # noqa: E731
    return np.asarray(fcojax.run(*given, num_rounds=NUM_ROUNDS, observe=observe)[1]["square"])


def test_the_mean_loss_is_not_convex_where_the_runs_begin():
    curvatures = np.linalg.eigvalsh(jax.hessian(mean_loss)(jnp.zeros(DIM)))
    assert curvatures[0] < -0.01 < 0.01 < curvatures[-1]


@pytest.mark.parametrize(("name", "cohort_size"), [("fed_pd", 8), ("fed_dyn", 8), ("fed_dyn", 4)])
def test_the_mean_squared_gradient_falls_as_one_over_the_rounds(name, cohort_size):
    """The squares have a finite sum: three times as many further rounds add very little."""
    squares = squared_gradients(name, cohort_size)
    assert squares[1000:].sum() < 0.01 * squares[:1000].sum()
    assert squares[-1] < 1e-16


def test_fed_avg_and_skipped_rounds_leave_a_gradient():
    assert squared_gradients("fed_avg")[-100:].min() > 1e-5
    skipping = squared_gradients("fed_pd", skip_probability=0.5)
    assert 1e-8 < np.median(skipping[-1000:]) < np.median(squared_gradients("fed_avg")[-1000:])
