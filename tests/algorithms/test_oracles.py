"""The engine's iterates against the slow numpy version of each algorithm."""

import functools

import jax
import numpy as np
import pytest

import fcojax
from tests.support import federations, oracles

pytestmark = pytest.mark.gate

SETTINGS = {
    "everyone, full batch": (
        federations.EQUAL,
        fcojax.local_steps(3),
        fcojax.everyone(),
        None,
    ),
    "sampled, minibatches, ragged": (
        federations.RAGGED,
        fcojax.local_steps(4, 3),
        fcojax.uniform_cohort(cohort_size=3),
        None,
    ),
    "epochs, ragged, by examples": (
        federations.RAGGED,
        fcojax.local_epochs(2, 3),
        fcojax.uniform_cohort(cohort_size=2),
        "examples",
    ),
    "coin flips, epochs": (
        federations.RAGGED,
        fcojax.local_epochs(1, 2),
        fcojax.coin_flips(0.4),
        "examples",
    ),
    "everyone, full batch, ragged": (
        federations.RAGGED,
        fcojax.local_epochs(2),
        fcojax.everyone(),
        None,
    ),
}


KEY = jax.random.key(11)


@functools.cache
def population(setting):
    """Return the clients of a setting, and the random draws of its eight rounds."""
    sizes, work, cohort, weights = SETTINGS[setting]
    data = fcojax.from_clients(federations.clients(sizes), weights)
    return data, federations.replay(data, KEY, 8, work, cohort)


# Every algorithm in one setting and one algorithm in every setting; the gate has half of the other
# pairs, with each algorithm and each setting.
PAIRS = [
    pytest.param(name, setting, marks=[] if quick else pytest.mark.slow)
    for i, name in enumerate(federations.NAMES)
    for j, setting in enumerate(SETTINGS)
    if (quick := setting == "sampled, minibatches, ragged" or name == "fed_dual_avg")
    or (i + j) % 2 == 0
]


@pytest.mark.parametrize(("name", "setting"), PAIRS)
def test_iterates_equal_the_oracle(name, setting):
    sizes, work, cohort, _ = SETTINGS[setting]
    data, rounds = population(setting)
    rates = federations.hparams(name, client_lr=0.03, server_lr=0.8, penalty_scale=0.2)
    ours = federations.models(
        federations.algorithm(name), rates, data, KEY, num_rounds=8, work=work, cohort=cohort
    )
    expected = oracles.simulate(
        name,
        np.asarray(federations.as_vector(federations.start())),
        federations.clients(sizes),
        rounds,
        0.03,
        0.8,
        0.2,
    )
    assert np.abs(expected[-1] - expected[0]).max() > 1e-2  # the model moved
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)
