"""The engine's iterates against the slow numpy version of each algorithm."""

import jax
import numpy as np
import pytest

import fcojax
from tests import federations, oracles

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
        fcojax.uniform_cohort(3),
        None,
    ),
    "epochs, ragged, by examples": (
        federations.RAGGED,
        fcojax.local_epochs(2, 3),
        fcojax.uniform_cohort(2),
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


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", federations.NAMES)
def test_iterates_equal_the_oracle(name, setting):
    sizes, work, cohort, weights = SETTINGS[setting]
    clients = federations.clients(sizes)
    data = fcojax.from_clients(clients, weights)
    key = jax.random.key(11)
    rates = federations.hparams(name, client_lr=0.03, server_lr=0.8, penalty_scale=0.2)
    ours = federations.models(
        federations.algorithm(name), rates, data, key, num_rounds=20, work=work, cohort=cohort
    )
    rounds = federations.replay(data, key, 20, work, cohort)
    expected = oracles.simulate(
        name,
        np.asarray(federations.as_vector(federations.start())),
        clients,
        rounds,
        0.03,
        0.8,
        0.2,
    )
    assert np.abs(expected[-1] - expected[0]).max() > 1e-2  # it went somewhere
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)
