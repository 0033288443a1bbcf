"""Losses of linear models against slow formulas, and Cox regression stratified by client."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import problems
from fcojax.algorithms import fed_avg
from fcojax.problems.cox import cox_loss
from fcojax.problems.linear_models import huber_loss, poisson_loss, quantile_loss

KEY = jax.random.key(0)


def at(z, y):
    """Parameters and rows with predictions z."""
    params = {"kernel": jnp.ones(1), "bias": jnp.zeros(())}
    return params, {"x": jnp.asarray(z, float)[:, None], "y": jnp.asarray(y, float)}


def test_quantile_loss_is_the_moreau_envelope_of_the_check_loss():
    level, width = 0.8, 0.3
    z, y = np.linspace(-1, 1, 41), np.full(41, 0.1)
    r, u = (y - z)[:, None], np.linspace(-2, 2, 40_001)[None, :]
    slow = np.min(np.maximum(level * u, (level - 1) * u) + (r - u) ** 2 / (2 * width), axis=1)
    np.testing.assert_allclose(quantile_loss(level, width)(*at(z, y)), slow, atol=1e-7)


def test_huber_loss_is_the_envelope_of_the_absolute_value():
    z, y = np.linspace(-3, 3, 31), np.full(31, 0.2)
    u = np.linspace(-4, 4, 40_001)[None, :]
    slow = np.min(1.5 * np.abs(u) + ((z - y)[:, None] - u) ** 2 / 2, axis=1)
    np.testing.assert_allclose(huber_loss(1.5)(*at(z, y)), slow, atol=1e-7)


def test_poisson_is_least_at_the_count():
    counts = np.array([1.0, 2.0, 7.0])
    slopes = jax.grad(lambda z: jnp.sum(poisson_loss(*at(z, counts))))(jnp.log(counts))
    np.testing.assert_allclose(slopes, 0, atol=1e-12)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda data: problems.poisson(data), "negative values"),
        (lambda data: problems.squared_hinge(data), "none of the 2 classes"),
    ],
)
def test_refusals(make, message):
    data = fcojax.from_rows({"x": np.ones((2, 1)), "y": np.array([-1.0, 1.0])}, [2])
    with pytest.raises(ValueError, match=message):
        make(data)


def survival():
    rng = np.random.default_rng(0)
    sizes = [7, 4]
    rows = {
        "x": rng.normal(size=(11, 2)),
        "time": rng.integers(1, 5, size=11).astype(float),  # ties
        "event": rng.integers(0, 2, size=11),
    }
    return fcojax.from_rows(rows, sizes, weights="examples")


def partial_likelihood(kernel, data):
    """By the book: for each event, the risks of those in the same client not gone before."""
    total, start = 0.0, 0
    for size in data.sizes.tolist():
        x, time, event = (
            np.asarray(data.examples[name])[start : start + size] for name in ("x", "time", "event")
        )
        risk = x @ kernel
        for i in np.flatnonzero(event):
            total += np.log(np.sum(np.exp(risk[time >= time[i]]))) - risk[i]
        start += size
    return total


def test_cox_is_the_partial_likelihood_stratified_by_client():
    data = survival()
    kernel = np.array([0.5, -1.0])
    value = problems.population_loss(cox_loss, jnp.asarray(kernel), data)
    assert float(value) * 11 == pytest.approx(partial_likelihood(kernel, data), rel=1e-12)
    # A round of one step is a gradient step of that, also where clients are padded.
    plan = fcojax.Plan(fcojax.local_steps(1), client_chunk_size=2)
    model, _ = fcojax.run(
        fed_avg(cox_loss), fed_avg.Hparams(client_lr=0.1), jnp.asarray(kernel), data, KEY, plan,
        num_rounds=1,
    )  # fmt: skip
    step = 1e-6
    slopes = [
        (partial_likelihood(kernel + h, data) - partial_likelihood(kernel - h, data)) / (2 * step)
        for h in step * np.eye(2)
    ]
    np.testing.assert_allclose(model, kernel - 0.1 * np.array(slopes) / 11, atol=1e-8)


def test_cox_takes_no_minibatches():
    with pytest.raises(ValueError, match="pass batch_size=None"):
        fcojax.run(
            fed_avg(cox_loss), fed_avg.Hparams(), jnp.zeros(2), survival(), KEY,
            fcojax.local_steps(1, 2), num_rounds=1,
        )  # fmt: skip
