"""Lost uploads: a client without a reply restores its state, so exact methods stay exact."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.transforms import flat
from tests.support import federations

NUM_CLIENTS, DIM = 6, 4
LOSSY = (fcojax.everyone(), fcojax.dropout(0.3))
LOSSY_HALF = (fcojax.uniform_cohort(cohort_size=3), fcojax.dropout(0.3))


@functools.cache
def quadratics():
    clients = federations.quadratic_clients(sizes=(1,) * NUM_CLIENTS, dim=DIM)
    return fcojax.from_clients(clients, weights=[1.0, 2.0, 0.5, 1.0, 3.0, 1.5])


def optimum():
    weights = np.asarray(quadratics().weights) / np.asarray(quadratics().weights).sum()
    rows = jax.tree.map(np.asarray, quadratics().examples)
    return np.linalg.solve(np.einsum("m,mij->ij", weights, rows["A"]), weights @ rows["c"])


METHODS = {
    "fed_dyn": (algorithms.fed_dyn(federations.quadratic), {"client_lr": 0.3, "prox_step": 1.0}),
    "fed_manifold": (algorithms.fed_manifold(federations.quadratic, flat()), {"client_lr": 0.05}),
}


def after(name, who, num_rounds):
    chosen, rates = METHODS[name]
    hparams, plan = chosen.hparams_type(**rates), fcojax.Plan(fcojax.local_steps(3), *who)
    state = fcojax.start(chosen, hparams, jnp.ones(DIM), quadratics(), jax.random.key(5), plan)
    state, _ = federations.block(chosen, plan, num_rounds, hparams, quadratics(), state)
    return fcojax.read_model(chosen, hparams, state), state


@pytest.mark.slow
@pytest.mark.parametrize("who", [LOSSY, LOSSY_HALF], ids=["everyone", "half"])
@pytest.mark.parametrize("name", METHODS)
def test_methods_exact_without_losses_are_exact_with_lost_uploads(name, who):
    assert np.linalg.norm(after(name, who, 3000)[0] - optimum()) < 1e-12


def test_the_drift_is_the_mean_dual_in_every_round_whatever_is_lost():
    _, state = after("fed_dyn", LOSSY_HALF, 5)
    weights = np.asarray(quadratics().weights)
    mean = weights @ np.asarray(state.clients.dual) / weights.sum()
    assert np.linalg.norm(mean) > 1e-3
    np.testing.assert_allclose(state.server.drift, mean, atol=1e-14)


def test_half_the_rounds_skipped_is_half_the_traffic():
    chosen = algorithms.fed_pd(federations.quadratic)
    hparams, key = chosen.hparams_type(skip_probability=0.5, client_lr=0.1), jax.random.key(1)
    given = chosen, hparams, jnp.zeros(DIM), quadratics(), key, fcojax.local_steps(1)
    _, history = fcojax.run(*given, num_rounds=400, eval_every=400)
    up = float(history["bytes_up"][0]) / (NUM_CLIENTS * DIM * 8)
    down = float(history["bytes_down"][0]) / (NUM_CLIENTS * (DIM * 8 + 1))
    assert up == round(up) and down == round(down)
    for exchanges in (up, down):  # four standard deviations of 400 coins
        assert abs(exchanges / 400 - 0.5) < 0.1
