"""Uploads above a bound, fixed or following a quantile, are left out."""

import functools

import jax
import numpy as np
import pytest

import fcojax
from fcojax import robust
from fcojax.engine.transform import NOTHING
from fcojax.uploads import chain
from tests.support import federations

KEY = jax.random.key(5)


@functools.cache
def data():
    """Return five clients, the third of which has absurd labels."""
    clients = [dict(client) for client in federations.clients()]
    clients[2]["y"] = clients[2]["y"] + 1e6
    return fcojax.from_clients(clients)


@functools.cache
def scaffold():
    return fcojax.algorithms.scaffold(federations.loss, federations.kernel_l1())


def run(uploads=NOTHING, cohort=None, num_rounds=8, population=None, **sizes):
    chosen = scaffold()
    hparams = chosen.hparams_type(client_lr=0.05, penalty_scale=0.1)
    plan = fcojax.Plan(fcojax.local_steps(2, 2), cohort or fcojax.everyone(), uploads, **sizes)
    given = population or data()
    state = fcojax.start(chosen, hparams, federations.start(), given, KEY, plan)
    return fcojax.advance(chosen, hparams, state, given, plan, num_rounds=num_rounds)


def equal(found, expected):
    for leaf, wanted in zip(
        jax.tree.leaves(found._replace(key=(), memory=())),
        jax.tree.leaves(expected._replace(key=(), memory=())),
        strict=True,
    ):
        np.testing.assert_allclose(leaf, wanted, rtol=1e-11, atol=1e-13)


def test_who_is_beyond_the_bound_is_as_if_it_had_not_been_there():
    """The model, all states, and the fraction that the server receives."""
    found, history = run(robust.norm_bound(1e4), client_chunk_size=2)
    assert history["left_out"].tolist() == [1] * 8 and history["dropped"].tolist() == [0] * 8
    there = np.ones((1, 5), bool)
    there[0, 2] = False
    absent, _ = run(cohort=fcojax.from_trace(there), client_chunk_size=2)
    equal(found, absent)


@pytest.mark.slow
def test_a_bound_beyond_all_uploads_changes_nothing():
    found, history = run(robust.norm_bound(1e30))
    plain, without = run()
    equal(found, plain)
    assert "left_out" not in without and not np.any(history["left_out"])


@pytest.mark.slow
@pytest.mark.parametrize("start", [1e-3, 1e3])
def test_a_quantile_is_found_and_kept(start):
    """The bound follows its recursion exactly, and the dropped share tends to 1 - q."""
    both, coins = (
        chain(robust.norm_quantile(0.7, start), fcojax.dropout(0.1)),
        fcojax.coin_flips(0.8),
    )
    population = fcojax.from_clients(federations.clients())
    state, history = run(both, coins, 600, population)
    arrived = np.asarray(history["participants"] - history["lost"], float)
    beyond = np.asarray(history["left_out"])
    moves = np.where(arrived > 0, beyond / np.maximum(arrived, 1) - 0.3, 0)
    bound = state.memory.transforms[0]
    np.testing.assert_allclose(bound, start * np.exp(0.2 * moves.sum()), rtol=1e-10)
    assert np.sum(beyond[200:]) / np.sum(arrived[200:]) == pytest.approx(0.3, abs=0.03)


@pytest.mark.slow
def test_bounds_are_a_points_and_a_seeds_own_and_the_same_on_a_mesh():
    chosen = federations.algorithm("fed_avg")
    grid = fcojax.grid.product(type(federations.hparams("fed_avg")), client_lr=[0.01, 0.05])
    plan = fcojax.Plan(
        fcojax.local_steps(2, 2),
        fcojax.uniform_cohort(cohort_size=3),
        robust.norm_quantile(0.5, 1.0),
    )
    keys = jax.random.split(KEY, 2)

    def bounds(population, grid, keys):
        state = fcojax.start(chosen, grid, federations.start(), population, keys, plan)
        state, _ = fcojax.advance(chosen, grid, state, population, plan, num_rounds=6)
        return np.asarray(state.memory.transforms[0])

    found = bounds(data(), grid, keys)
    assert np.unique(found).size == 4
    sharded = fcojax.devices.shard_clients(data(), fcojax.devices.client_mesh(2))
    np.testing.assert_allclose(bounds(sharded, grid, keys), found, rtol=1e-12)
    for seed in range(2):
        for point in range(2):
            one = bounds(data(), type(grid)(grid.client_lr[point]), keys[seed])
            np.testing.assert_allclose(one, found[point, seed], rtol=1e-12)
