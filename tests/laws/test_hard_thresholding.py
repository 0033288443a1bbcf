"""Fed-HT and Fed-IterHT are FedMiD on a set of sparse vectors.

Tong, Liang, Zhu and Bi, "Federated nonconvex sparse learning", 2020 (arXiv 2101.00052): K local
steps, an average, and the projection on tau nonzeros, in Fed-IterHT after each local step too.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms import fed_mid, fed_mid_osp
from fcojax.transforms import euclidean, l0_ball
from tests.support.federations import client_means, quadratic, quadratic_clients

pytestmark = pytest.mark.gate

DIM, TAU, STEPS, RATE, ROUNDS = 8, 3, 4, 0.2, 10
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.5])
START = np.random.default_rng(1).standard_normal(DIM)


def clients():
    return quadratic_clients(sizes=(1,) * 4, dim=DIM, seed=6)


def largest(x):
    """Return x with only its tau entries of largest magnitude."""
    return np.where(np.argsort(np.argsort(-np.abs(x))) < TAU, x, 0)


def hard_thresholding(each_step):
    curvatures, slopes = client_means(clients())
    x = START
    for _ in range(ROUNDS):
        ends = []
        for curvature, slope in zip(curvatures, slopes, strict=True):
            end = x
            for _ in range(STEPS):
                end = end - RATE * (curvature @ end - slope)
                end = largest(end) if each_step else end
            ends.append(end)
        x = largest(np.average(ends, axis=0, weights=WEIGHTS))
        yield x


@pytest.mark.parametrize(
    ("factory", "each_step"),
    [(fed_mid_osp, False), pytest.param(fed_mid, True, marks=pytest.mark.slow)],
    ids=["Fed-HT", "Fed-IterHT"],
)
def test_fed_mid_on_sparse_vectors_is_hard_thresholding(factory, each_step):
    chosen = factory(quadratic, euclidean(l0_ball(TAU)))
    _, history = fcojax.run(
        chosen,
        factory.Hparams(RATE),
        jnp.asarray(START),
        fcojax.from_clients(clients(), WEIGHTS),
        jax.random.key(0),
        fcojax.local_steps(STEPS),
        num_rounds=ROUNDS,
        observe=lambda hparams, model, context: {"model": model},
    )
    expected = np.array(list(hard_thresholding(each_step)))
    assert (np.count_nonzero(expected, axis=1) == TAU).all()
    np.testing.assert_allclose(history["model"], expected, rtol=0, atol=1e-12)
    assert np.array_equal(np.asarray(history["model"]) != 0, expected != 0)
