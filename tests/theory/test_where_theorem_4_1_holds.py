"""Theorem 4.1 with a constraint: true for FedDualAvg and FedMiD-OSP, false for FedMiD.

Two clients with linear losses on [-1, 1] go round in a cycle that can be computed by hand. The
models are compared with Algorithm 2 of the paper in plain numpy.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.theory import fco
from fcojax.transforms import euclidean, l2_ball

pytestmark = pytest.mark.gate
OUTWARD, INWARD, SMOOTHNESS, STEPS, CLIENT_LR = 3.0, 1.0, 2.0, 4, 1e-6
GAMMA = 1 / (4 * SMOOTHNESS)
SLOPES = np.array([-OUTWARD, INWARD])
BEST = 1.0  # the mean slope is negative


def models(name, num_rounds):
    data = fcojax.from_rows({"c": SLOPES}, [1, 1])
    algorithm = getattr(fcojax.algorithms, name)(lambda w, rows: rows["c"] * w, MIRROR)
    hparams = algorithm.hparams_type(
        client_lr=CLIENT_LR, server_lr=GAMMA / (CLIENT_LR * STEPS), penalty_scale=1.0
    )
    given = jnp.zeros(()), data, jax.random.key(0), fcojax.local_steps(STEPS)
    observe = {"observe": lambda hparams, w, context: {"w": w}}
    return fcojax.run(algorithm, hparams, *given, num_rounds=num_rounds, **observe)[1]["w"]


MIRROR = euclidean(l2_ball())


def by_hand(num_rounds):
    """Algorithm 2, with the projection as the prox of clients and server."""
    w, found = 0.0, []
    for _ in range(num_rounds):
        ends = []
        for slope in SLOPES:
            x = w
            for _ in range(STEPS):
                x = np.clip(x - CLIENT_LR * slope, -1, 1)
            ends.append(x)
        w = np.clip(w + GAMMA / (CLIENT_LR * STEPS) * (np.mean(ends) - w), -1, 1)
        found.append(w)
    return np.array(found)


def gap_and_bound(name, num_rounds):
    gap = SLOPES.mean() * (np.mean(models(name, num_rounds)) - BEST)
    constants = fco.Constants(BEST**2 / 2, SMOOTHNESS, 0.0, len(SLOPES))
    return gap, fco.gap_of_small_steps(constants, GAMMA, STEPS, num_rounds)


def test_fed_mid_goes_round_in_a_cycle_of_two():
    found = models("fed_mid", 100)
    np.testing.assert_allclose(found, by_hand(100), atol=1e-8)
    # At 1 the outward client stays, and the inward one takes the mean with it.
    np.testing.assert_allclose(found[-4:], [1 - GAMMA * INWARD / 2, 1] * 2, atol=1e-8)


@pytest.mark.parametrize("num_rounds", [1_000, 10_000])
def test_the_gap_of_fed_mid_stays_while_the_bound_falls(num_rounds):
    gap, bound = gap_and_bound("fed_mid", num_rounds)
    assert gap > GAMMA * INWARD * (OUTWARD - INWARD) / 8  # for every number of rounds
    assert bound == pytest.approx(4 * SMOOTHNESS * 0.5 / num_rounds)
    assert bound < gap / 8


@pytest.mark.parametrize("name", ["fed_dual_avg", "fed_mid_osp"])
def test_the_bound_holds_where_clients_do_not_project_or_sum_in_the_dual(name):
    gap, bound = gap_and_bound(name, 1_000)
    assert 0 < gap < bound < 1.2 * gap


def test_relation_4_5_holds_for_duals_and_fails_for_projected_steps():
    """The mean dual follows the mean gradient: w - eta K mean(slope), also at the boundary."""
    moved = {}
    for name in ("fed_mid", "fed_mid_osp", "fed_dual_avg"):
        algorithm = getattr(fcojax.algorithms, name)(lambda w, rows: rows["c"] * w, MIRROR)
        hparams = algorithm.hparams_type(client_lr=CLIENT_LR, penalty_scale=1.0)
        ends = []
        for slope in SLOPES:  # each client alone, from the boundary
            alone = fcojax.from_rows({"c": np.array([slope])}, [1])
            given = jnp.array(BEST), alone, jax.random.key(0), fcojax.local_steps(STEPS)
            state = fcojax.start(algorithm, hparams, *given)
            state, _ = fcojax.advance(algorithm, hparams, state, alone, given[-1], num_rounds=1)
            ends.append(getattr(state.server, "dual", state.server))
        moved[name] = (np.mean(ends) - BEST) / (CLIENT_LR * STEPS)
    assert moved["fed_dual_avg"] == pytest.approx(-SLOPES.mean(), rel=1e-6)
    assert moved["fed_mid"] == pytest.approx(-INWARD / 2, rel=1e-6)  # of the other sign
