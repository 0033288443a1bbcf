"""Losses of linear models against slow formulas, and Cox regression stratified by client."""

import functools

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
    """Return parameters and rows with predictions z."""
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


def refused(make, data, message, validation=None):
    """The error has one line."""
    with pytest.raises(ValueError, match=message):
        make(data, validation)


@pytest.mark.parametrize(
    "make, y, message",
    [
        (problems.poisson, [-1, 1], "negative values"),
        (problems.squared_hinge, [-1, 1], "not one of 2 classes"),
        (problems.logistic, [1, 1], "every label y of the training data is 1"),
        (problems.logistic, [0, 0], "every label y of the training data is 0"),
    ],
)
def test_targets_that_a_loss_cannot_fit_are_refused(make, y, message):
    refused(make, fcojax.from_rows({"x": np.ones((2, 1)), "y": np.array(y)}, [2]), message)


MODELS = {
    "least_squares": problems.least_squares,
    "linear": problems.linear,
    "poisson": problems.poisson,
    "huber": problems.huber_regression,
    "quantile": problems.quantile_regression,
    "hinge": problems.squared_hinge,
    "logistic": problems.logistic,
    "cox": problems.cox,
    "softmax": functools.partial(problems.softmax, num_classes=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_fields_of_other_shapes_would_broadcast_and_are_refused(name):
    fields = ("time", "event") if name == "cox" else ("y",)
    good = {"x": np.ones((2, 3))} | {field: np.array([0, 1]) for field in fields}
    data = fcojax.from_rows(good, [1, 1])
    MODELS[name](data, data)
    for field in fields:
        for wrong in (np.zeros((2, 1), int), np.zeros((2, 2), int)):
            other = fcojax.from_rows(good | {field: wrong}, [1, 1])
            shape = rf"shape \(2, {wrong.shape[1]}\); pass one"
            refused(MODELS[name], other, f"training data .*{shape}")
            refused(MODELS[name], data, f"validation data .*{shape}", other)
    wide, flat = (fcojax.from_rows(good | {"x": x}, [2]) for x in (np.ones((2, 4)), np.ones(2)))
    refused(MODELS[name], data, r"x of the validation data has shape \(2, 4\); pass \[rows", wide)
    refused(MODELS[name], flat, r"x of the training data has shape \(2,\); pass \[rows")


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
    """The textbook formula: for each event, the risks of its client's rows still at risk."""
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
    # A round of one step is a gradient step of it, also for padded clients.
    plan = fcojax.Plan(fcojax.local_steps(1), client_chunk_size=2)
    model, _ = fcojax.run(
        fed_avg(cox_loss),
        fed_avg.Hparams(client_lr=0.1),
        jnp.asarray(kernel),
        data,
        KEY,
        plan,
        num_rounds=1,
    )
    step = 1e-6
    slopes = [
        (partial_likelihood(kernel + h, data) - partial_likelihood(kernel - h, data)) / (2 * step)
        for h in step * np.eye(2)
    ]
    np.testing.assert_allclose(model, kernel - 0.1 * np.array(slopes) / 11, atol=1e-8)


def test_cox_takes_no_minibatches():
    with pytest.raises(ValueError, match="pass batch_size=None"):
        fcojax.run(
            fed_avg(cox_loss),
            fed_avg.Hparams(),
            jnp.zeros(2),
            survival(),
            KEY,
            fcojax.local_steps(1, 2),
            num_rounds=1,
        )


def test_an_event_is_0_or_1():
    rows = {"x": np.ones((2, 1)), "time": np.array([1.0, 2.0]), "event": np.array([0, 2])}
    refused(problems.cox, fcojax.from_rows(rows, [2]), "field event has values other than 0 and 1")
