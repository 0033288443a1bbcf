"""Losses of linear models against slow formulas, and a loss of whole clients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import problems
from fcojax.algorithms import fed_avg
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
        (problems.poisson, [-1, 1], "pass counts"),
        (problems.poisson, [0, 3.5], "pass counts"),
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
    "softmax": functools.partial(problems.softmax, num_classes=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_fields_of_other_shapes_would_broadcast_and_are_refused(name):
    good = {"x": np.ones((2, 3)), "y": np.array([0, 1])}
    data = fcojax.from_rows(good, [1, 1])
    MODELS[name](data, data)
    for width in (1, 2):
        other = fcojax.from_rows(good | {"y": np.zeros((2, width), int)}, [1, 1])
        shape = rf"shape \(2, {width}\); pass one"
        refused(MODELS[name], other, f"training data .*{shape}")
        refused(MODELS[name], data, f"validation data .*{shape}", other)
    wide, flat = (fcojax.from_rows(good | {"x": x}, [2]) for x in (np.ones((2, 4)), np.ones(2)))
    refused(MODELS[name], data, r"x of the validation data has shape \(2, 4\); pass \[rows", wide)
    refused(MODELS[name], flat, r"x of the training data has shape \(2,\); pass \[rows")


@problems.WholeBatchLoss
def spread(w, rows, weights):
    """The squared distances to the mean of the client, times w."""
    mean = jnp.sum(weights * rows["a"]) / jnp.sum(weights)
    return w * (rows["a"] - mean) ** 2


def after_one_round(work):
    a = np.random.default_rng(0).normal(size=11)
    data = fcojax.from_rows({"a": a}, [7, 4], weights="examples")
    plan, hparams = fcojax.Plan(work, client_chunk_size=2), fed_avg.Hparams(client_lr=0.1)
    start = jnp.array(1.0)
    model, _ = fcojax.run(fed_avg(spread), hparams, start, data, KEY, plan, num_rounds=1)
    return model, problems.population_loss(spread, start, data), a


def test_a_loss_of_whole_clients_sees_each_client_alone_and_no_padding():
    model, value, a = after_one_round(fcojax.local_steps(1))
    expected = (7 * a[:7].var() + 4 * a[7:].var()) / 11
    assert float(value) == pytest.approx(expected, rel=1e-12)
    assert float(model) == pytest.approx(1 - 0.1 * expected, rel=1e-12)


def test_a_loss_of_whole_clients_takes_no_minibatches():
    with pytest.raises(ValueError, match="pass batch_size=None"):
        after_one_round(fcojax.local_steps(1, 2))
