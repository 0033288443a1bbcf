"""Invariants of FedPD and FedDyn in every round, and their special cases."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.algorithms.local_solvers import variance_reduced
from tests.support import federations, primal_dual
from tests.support.primal_dual import (
    DIM,
    ETA,
    NUM_CLIENTS,
    first_point,
    gradients,
    hparams,
    prox,
    trajectory,
)

pytestmark = pytest.mark.gate

COHORTS = {
    "everyone": fcojax.everyone(),
    "half": fcojax.uniform_cohort(cohort_size=4),
    "one": fcojax.uniform_cohort(cohort_size=1),
    "coin flips": fcojax.coin_flips(0.2),
    "half, lost": fcojax.uniform_cohort(cohort_size=4),
}
WEIGHTS = tuple(np.random.default_rng(4).uniform(0.2, 3.0, NUM_CLIENTS))
FIRST = np.random.default_rng(3).standard_normal((NUM_CLIENTS, DIM))


@functools.cache
def sampled(cohort):
    """FedDyn with inexact solves, weights, a penalty and arbitrary first duals."""
    return trajectory(
        "fed_dyn",
        "gd",
        cohort=COHORTS[cohort],
        losses=fcojax.dropout(0.3 if "lost" in cohort else 0.0),
        duals=FIRST,
        data=primal_dual.population(WEIGHTS),
        rates=hparams("fed_dyn", penalty_scale=0.1),
    )


@pytest.mark.parametrize(
    "cohort",
    ["everyone", "half, lost", *(pytest.param(w, marks=pytest.mark.slow) for w in COHORTS)],
)
def test_the_drift_is_the_mean_dual_after_every_round(cohort):
    """Weighted over all clients, absent ones included, whatever is lost."""
    states = sampled(cohort)
    mean = np.einsum("m,rmi->ri", np.array(WEIGHTS) / np.sum(WEIGHTS), states.clients.dual)
    assert np.ptp(mean, axis=0).max() > 0.1
    np.testing.assert_allclose(states.server.drift, mean, rtol=0, atol=1e-12)


def test_an_exact_solve_makes_the_dual_minus_the_gradient():
    """For any previous dual and any cohort, after a client has taken part."""
    for name, cohort in (("fed_pd", "everyone"), ("fed_dyn", "half")):
        states = trajectory(name, cohort=COHORTS[cohort], duals=FIRST)
        moved = (states.clients.dual != FIRST).any(axis=-1)
        assert moved[-1].all()
        for model, dual, seen in zip(states.clients.model, states.clients.dual, moved, strict=True):
            np.testing.assert_allclose(dual[seen], -gradients(model)[seen], rtol=0, atol=1e-10)


def test_the_dual_adds_up_the_moves_from_the_anchor():
    """eta lambda_i is the sum of x_i - x_0 over the rounds in which client i took part."""
    states = sampled("half")
    anchors = np.concatenate([first_point()[None], states.server.center[:-1]])
    changes = np.diff(states.clients.dual, axis=0, prepend=FIRST[None])
    took_part = (changes != 0).any(axis=-1)
    assert (took_part.sum(axis=1) == 4).all()
    moves = np.where(took_part[..., None], states.clients.model - anchors[:, None], 0)
    np.testing.assert_allclose(
        ETA * (states.clients.dual - FIRST), np.cumsum(moves, axis=0), rtol=0, atol=1e-12
    )


def test_half_the_rounds_skipped_is_half_the_traffic():
    chosen, data = primal_dual.algorithm("fed_pd"), primal_dual.population()
    given = chosen, hparams("fed_pd", skip_probability=0.5), jnp.zeros(DIM), data, primal_dual.KEY
    _, history = fcojax.run(*given, fcojax.local_steps(1), num_rounds=400, eval_every=400)
    up = float(history["bytes_up"][0]) / (NUM_CLIENTS * DIM * 8)
    down = float(history["bytes_down"][0]) / (NUM_CLIENTS * (DIM * 8 + 1))
    assert up == round(up) and down == round(down)
    for exchanges in (up, down):  # four standard deviations of 400 coins
        assert abs(exchanges / 400 - 0.5) < 0.1


@functools.cache
def skipping():
    rates = hparams("fed_pd", skip_probability=0.7)
    return trajectory("fed_pd", rates=rates, duals=FIRST)


def test_a_skipped_round_is_a_proximal_point_step_on_the_clients_own_loss():
    """After an exact solve the anchor is x_i - eta grad f_i(x_i), and so the next solution is
    prox_{eta f_i}(x_i)."""
    states = skipping()
    skipped = ~states.server.synced
    assert 20 < skipped.sum() < 58
    models = states.clients.model
    for r in np.flatnonzero(skipped[:-1]):
        np.testing.assert_allclose(models[r + 1], prox(models[r], ETA), rtol=0, atol=1e-12)
    r = np.flatnonzero(~skipped[:-1])[0]
    assert np.abs(models[r + 1] - prox(models[r], ETA)).max() > 0.01


def test_the_model_changes_in_rounds_with_an_exchange_and_in_no_others():
    states = skipping()
    changed = (np.diff(states.server.center, axis=0, prepend=first_point()[None]) != 0).any(axis=1)
    assert np.array_equal(changed, states.server.synced)


def test_the_coin_falls_with_its_probability_in_every_round_anew():
    """4000 coins within five standard deviations; a schedule gives each round its probability."""
    num_rounds, skip = 4000, 0.3
    synced = coins(np.full(num_rounds, skip))
    deviation = np.sqrt(num_rounds * skip * (1 - skip))
    assert abs(synced.sum() - num_rounds * (1 - skip)) < 5 * deviation
    pairs = (synced[1:] & synced[:-1]).sum()
    assert abs(pairs - num_rounds * (1 - skip) ** 2) < 5 * np.sqrt(num_rounds)
    falling = coins(1 - np.arange(num_rounds) / num_rounds - 1e-9)
    expected = np.cumsum(np.arange(num_rounds) / num_rounds)
    assert np.abs(np.cumsum(falling) - expected).max() < 5 * np.sqrt(num_rounds / 6)
    assert coins(np.zeros(num_rounds)).all()


def synced(hparams, server, context):
    return {"synced": server.synced}


def coins(skip_probability):
    """Return whether each round ends with an exchange, for one client without work."""
    chosen = primal_dual.algorithm("fed_pd")
    data = jax.tree.map(lambda leaf: leaf[:1], primal_dual.population().examples)
    rates = hparams("fed_pd")._replace(skip_probability=fcojax.schedule(skip_probability))
    _, history = fcojax.run(
        federations.revealing(chosen),
        rates,
        jnp.zeros(DIM),
        fcojax.from_clients([data]),
        primal_dual.KEY,
        num_rounds=len(skip_probability),
        plan=fcojax.local_steps(1),
        observe=synced,
    )
    return np.asarray(history["synced"])


def fed_dr(y, scale, num_rounds):
    """Return the centers of federated Douglas-Rachford splitting, alpha = 1, all clients."""
    centers = []
    models = prox(y, ETA)
    reflected = 2 * models - y
    for _ in range(num_rounds):
        mean = reflected.mean(axis=0)
        center = np.sign(mean) * np.maximum(np.abs(mean) - ETA * scale, 0)
        y = y + (center - models)
        models = prox(y, ETA)
        reflected = 2 * models - y
        centers.append(center)
    return np.array(centers)


@pytest.mark.parametrize("name", ["fed_pd", "fed_dyn"])
def test_with_a_server_prox_they_are_douglas_rachford_splitting(name):
    r"""FedDR with alpha = 1, where :math:`y_i = x_0 - \eta \lambda_i`.

    The two agree if the first center is the same: FedDR starts from y_i^0, whose duals are
    lambda_i = (x_i - y_i^0) / eta, and averages before it solves.
    """
    scale, y = 0.2, first_point() + FIRST
    models = prox(y, ETA)
    expected = fed_dr(y, scale, 61)
    states = trajectory(
        name,
        rates=hparams(name, penalty_scale=scale),
        duals=(models - y) / ETA,
        center=expected[0],
    )
    assert np.abs(np.diff(expected, axis=0)).max() > 0.1
    np.testing.assert_allclose(states.server.center, expected[1:], rtol=0, atol=1e-12)


def test_variance_reduction_on_full_batches_is_gradient_descent():
    """The corrections then add up to the gradient, however rarely it is refreshed."""
    options = {"rates": hparams("fed_pd", skip_probability=0.3)}
    plain = trajectory("fed_pd", "gd", **options)
    reduced = trajectory("fed_pd", variance_reduced(refresh_every=100), **options)
    np.testing.assert_allclose(reduced.server.center, plain.server.center, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        reduced.clients.memory.estimate[-1], gradients(reduced.clients.model[-1]), atol=1e-12
    )
