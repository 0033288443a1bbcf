"""A sweep over seeds equals its runs, also if chunks are empty for only some seeds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.engine.hparams import as_arrays
from tests.laws.test_algorithm_laws import point, rates
from tests.laws.test_copies import COHORTS, DATA
from tests.laws.test_rows_without_weight import build

LOSSES = {name: (fcojax.dropout(who, 0.3), size) for name, (who, size) in COHORTS.items()}
KEYS = jax.random.split(jax.random.key(5), 3)


def after(name, hparams, who, size, key, num_rounds=4):
    plan = fcojax.Plan(fcojax.local_steps(2, 2), who, client_chunk_size=size)
    given = build(name), hparams
    state = fcojax.start(*given, point(name), DATA, key, plan)
    return fcojax.advance(*given, state, DATA, plan, num_rounds=num_rounds)


@pytest.mark.slow
@pytest.mark.parametrize("cohort", LOSSES)
@pytest.mark.parametrize("name", ["fed_dyn", "scaffold"])
def test_a_sweep_is_its_runs_with_states_losses_and_empty_chunks(name, cohort):
    one = as_arrays(rates(name))
    grid = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf / 2]), one)
    state, history = after(name, grid, *LOSSES[cohort], KEYS)
    for seed, at in np.ndindex(3, 2):
        hparams = jax.tree.map(lambda leaf, at=at: leaf[at], grid)
        alone, told = after(name, hparams, *LOSSES[cohort], KEYS[seed])
        for part, wanted in (
            ((state.server, state.clients), (alone.server, alone.clients)),
            (history, told),
        ):
            found = jax.tree.map(lambda leaf, seed=seed, at=at: leaf[at, seed], part)
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, wanted
            )


@pytest.mark.slow
def test_a_point_without_finite_uploads_takes_no_branch_of_its_neighbours():
    """Its server uses steps only, while the others' use gradients and steps in turn."""
    who, size = COHORTS["everyone"]
    grid = fcojax.grid.product(fcojax.algorithms.mime.Hparams, client_lr=[1e308, 0.05])
    state, history = after("mime", grid, who, size, KEYS)
    assert history["dropped"][0].min(axis=0).tolist() == [0, 101, 101, 101]
    assert history["dropped"][1].max() == 0
    assert state.server.stepping.tolist() == [[True] * 3, [False] * 3]
    alone, _ = after("mime", jax.tree.map(lambda leaf: leaf[1], grid), who, size, KEYS[1])
    found = jax.tree.map(lambda leaf: leaf[1, 1], state.server)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), found, alone.server)
