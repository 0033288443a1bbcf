"""FedGD and Local SGD against slow numpy versions, each other, and centralised SGD."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import fed_gd, local_sgd
from tests.support import federations
from tests.support.federations import quadratic, quadratic_clients

pytestmark = pytest.mark.gate

KEY = jax.random.key(8)
START = np.array([1.0, -0.6, 0.3, 0.8])
NUM_ROUNDS = 8
WITH_REPLACEMENT = fcojax.local_steps(3, 2, replace=True)
SETTINGS = {
    "everyone, with replacement": (WITH_REPLACEMENT, fcojax.everyone()),
    "sampled, epochs": (fcojax.local_epochs(1, 2), fcojax.uniform_cohort(cohort_size=3)),
}
DECAYING = local_sgd.Hparams(client_lr=0.3, decay=0.1)


@functools.cache
def build(factory, **options):
    return factory(quadratic, **options)


@functools.cache
def population(weights="examples"):
    return fcojax.from_clients(quadratic_clients(), weights)


@functools.cache
def drawn(work, cohort=None):
    return federations.replay(population(), KEY, NUM_ROUNDS, work, cohort or fcojax.everyone())


def whole_model(hparams, params, context):
    return {"model": params}


def models(chosen, hparams, data, **options):
    """The model after every round."""
    options = {"num_rounds": NUM_ROUNDS, "observe": whole_model} | federations.planned(options)
    start = jnp.asarray(START)
    return np.asarray(fcojax.run(chosen, hparams, start, data, KEY, **options)[1]["model"])


def simulate(clients, rounds, step_size):
    """Plain Local SGD; ``step_size(r, t)`` has the global step t."""
    x, t, result = START, 0, []
    for r, cohort in enumerate(rounds):
        ends, counts, weights = [], [], []
        for member, weight, batches in cohort:
            own, k = x, 0
            for indices, batch_weights in batches:
                if batch_weights.sum() == 0:
                    continue
                curvature = np.average(clients[member]["A"][indices], axis=0, weights=batch_weights)
                slope = np.average(clients[member]["c"][indices], axis=0, weights=batch_weights)
                own = own - step_size(r, t + k) * (curvature @ own - slope)
                k += 1
            ends.append(own)
            counts.append(k)
            weights.append(weight)
        x = np.average(ends, axis=0, weights=weights)
        t += round(np.average(counts, weights=weights))
        result.append(x)
    return np.array(result)


def assert_same(ours, expected, tolerance=1e-12):
    expected = np.asarray(expected)
    assert np.abs(np.diff(expected, axis=0)).max(axis=1).min() > 1e-4  # it keeps moving
    np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "setting",
    ["everyone, with replacement", pytest.param("sampled, epochs", marks=pytest.mark.slow)],
)
def test_the_step_size_follows_the_global_step_also_within_a_round(setting):
    work, cohort = SETTINGS[setting]
    rounds = drawn(work, cohort)
    ours = models(build(local_sgd), DECAYING, population(), work=work, cohort=cohort)
    expected = simulate(quadratic_clients(), rounds, lambda r, t: 0.3 / (1 + 0.1 * t))
    assert_same(ours, expected)
    once_a_round = simulate(
        quadratic_clients(), rounds, lambda r, t: 0.3 / (1 + 0.1 * (t // 3 * 3))
    )
    assert np.abs(ours - once_a_round).max() > 1e-3


def test_full_gradients_and_a_constant_step_are_fed_gd():
    """They are equal bit for bit, because the operations and their order are the same."""
    work = fcojax.local_steps(3)
    constant = local_sgd.Hparams(client_lr=0.3, decay=0.0)
    ours = models(build(local_sgd), constant, population(), work=work)
    assert np.array_equal(ours, models(build(fed_gd), fed_gd.Hparams(0.3), population(), work=work))


@pytest.mark.parametrize("work", [fcojax.local_steps(2, 2), fcojax.local_epochs(1, 2)])
def test_fed_gd_refuses_minibatches(work):
    with pytest.raises(ValueError, match="batch_size is 2"):
        models(build(fed_gd), fed_gd.Hparams(), population(), work=work)
