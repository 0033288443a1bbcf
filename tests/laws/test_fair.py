"""Weights of clients by their losses: special cases, and limits against minimisers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.transforms import euclidean, l1
from tests.support import federations

CLIENTS = federations.quadratic_clients(sizes=(3, 3, 3))
DATA = fcojax.from_clients(CLIENTS)
MATRICES, VECTORS = federations.client_means(CLIENTS)
STRENGTH = 0.05


def loss(w, rows):
    return 1.0 + federations.quadratic(w, rows)  # positive near the minimisers


def ended(algorithm, num_steps=1, num_rounds=1000, **numbers):
    hparams = algorithm.hparams_type(**({"penalty_scale": STRENGTH} | numbers))
    plan = fcojax.local_steps(num_steps)
    return fcojax.run(
        algorithm,
        hparams,
        jnp.zeros(4),
        DATA,
        jax.random.key(0),
        plan,
        num_rounds=num_rounds,
        eval_every=num_rounds,
    )[0]


@functools.cache
def built():
    return algorithms.q_fed_avg(loss, l1())


def test_with_even_weights_it_is_averaging_with_a_prox_on_the_server():
    plain = algorithms.fed_mid_osp(loss, euclidean(l1()))
    expected = ended(plain, num_steps=3, num_rounds=9, client_lr=0.1)
    found = ended(built(), num_steps=3, num_rounds=9, client_lr=0.1, power=0.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


def minimiser(weights):
    """Return a minimiser of an objective with this gradient in the losses, and an l1 norm."""
    w = np.zeros(4)
    for _ in range(4000):
        losses = 1 + np.einsum("i,mij,j->m", w, MATRICES, w) / 2 - VECTORS @ w
        slope = weights(losses) @ (MATRICES @ w - VECTORS)
        w = w - 0.02 * slope
        w = np.sign(w) * np.maximum(np.abs(w) - 0.02 * STRENGTH, 0)
    return w


@pytest.mark.slow
@pytest.mark.gate
def test_the_limit_is_the_minimiser_of_the_fair_objective():
    found = ended(built(), client_lr=0.3, power=2.0)
    expected = minimiser(lambda losses: losses**2 / 3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
