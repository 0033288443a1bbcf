"""A sweep over seeds equals its runs, with absence, losses, chunks, devices and a resumed start.

It does not copy the population, as branches on mapped conditions would for each point.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

import fcojax
from fcojax.engine.hparams import as_arrays
from fcojax.engine.plan import Program
from fcojax.engine.run import advance_compiled
from fcojax.personal import read_models
from tests.laws.test_algorithm_laws import CLIENTS, point, rates
from tests.laws.test_rows_without_weight import NAMES, SOME, build

DATA = fcojax.from_clients([CLIENTS[m % len(CLIENTS)] for m in range(101)])
NUM_ROWS = len(jax.tree.leaves(DATA.examples)[0])
# Samplers and chunk sizes.
COHORTS = {
    "a chunk that is not full": (fcojax.uniform_cohort(cohort_size=7), 4),
    "coins": (fcojax.coin_flips(0.1), 1),
    "everyone": (fcojax.everyone(), 4),
}
PAIRS = [
    (name, cohort)
    for name in NAMES
    for cohort in (COHORTS if name in SOME else ("a chunk that is not full", "everyone"))
    if cohort == "everyone" or not build(name).facts.needs_everyone
]
LOSSES = fcojax.dropout(0.3)
KEYS = jax.random.split(jax.random.key(5), 3)
PERSONAL = ("ditto", "partial_sharing")


def after(name, hparams, who, size, key, num_rounds=4, *, losses=LOSSES, data=DATA, saved_in=None):
    plan = fcojax.Plan(fcojax.local_steps(2, 2), who, losses, client_chunk_size=size)
    given = build(name), hparams
    first = fcojax.start(*given, point(name), data, key, plan)
    if saved_in is None:
        return fcojax.advance(*given, first, data, plan, num_rounds=num_rounds)
    state, early = fcojax.advance(*given, first, data, plan, num_rounds=num_rounds // 2)
    ocp.save(saved_in, state)
    state, late = fcojax.advance(
        *given, ocp.load(saved_in, first), data, plan, num_rounds=num_rounds - num_rounds // 2
    )
    both = jax.tree.map(lambda *parts: np.concatenate(parts, axis=2), early, late)
    return state, both


def close(found, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, expected
    )


@pytest.mark.slow
@pytest.mark.parametrize("cohort", COHORTS)
@pytest.mark.parametrize("name", ["fed_dyn", "scaffold"])
def test_a_sweep_is_its_runs_with_states_losses_and_empty_chunks(name, cohort):
    one = as_arrays(rates(name))
    grid = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf / 2]), one)
    state, history = after(name, grid, *COHORTS[cohort], KEYS)
    for seed, at in np.ndindex(3, 2):
        hparams = jax.tree.map(lambda leaf, at=at: leaf[at], grid)
        alone, told = after(name, hparams, *COHORTS[cohort], KEYS[seed])
        found = jax.tree.map(
            lambda leaf, seed=seed, at=at: leaf[at, seed], (state.server, state.clients, history)
        )
        close(found, (alone.server, alone.clients, told))


@pytest.mark.slow
@pytest.mark.parametrize("cohort", ["a chunk that is not full", "coins"])
@pytest.mark.parametrize("name", PERSONAL)
def test_a_sweep_on_two_devices_and_resumed_from_a_file_is_its_runs(name, cohort, tmp_path):
    grid = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf / 2]), as_arrays(rates(name)))
    spread = fcojax.devices.shard_clients(DATA, fcojax.devices.device_mesh(clients=2))
    given = name, grid, *COHORTS[cohort], KEYS[:2]
    whole, told = after(*given, data=spread)
    resumed, told_twice = after(*given, data=spread, saved_in=tmp_path / "state")
    parts = [(state.server, state.clients) for state in (whole, resumed)]
    jax.tree.map(np.testing.assert_array_equal, (parts[0], told), (parts[1], told_twice))
    assert told["lost"].sum() > 0

    def models(hparams, state):
        if name not in PERSONAL:
            return state.server
        # On two devices there is one client more, without rows.
        return read_models(build(name), hparams, state)[..., : DATA.num_clients, :]

    own = models(grid, whole)  # [points, seeds, clients]
    for seed, at in np.ndindex(2, 2):
        hparams = jax.tree.map(lambda leaf, at=at: leaf[at], grid)
        alone, expected = after(name, hparams, *COHORTS[cohort], KEYS[seed])
        found = jax.tree.map(
            lambda leaf, seed=seed, at=at: leaf[at, seed], (whole.server, own, told)
        )
        close(found, (alone.server, models(hparams, alone), expected))


@pytest.mark.slow
def test_a_point_without_finite_uploads_takes_no_branch_of_its_neighbours():
    """Its server uses steps only, while the others' use gradients and steps in turn."""
    who, size = COHORTS["everyone"]
    grid = fcojax.grid.product(fcojax.algorithms.mime.Hparams, client_lr=[1e308, 0.05])
    whole = {"losses": fcojax.dropout(0.0)}
    state, history = after("mime", grid, who, size, KEYS, **whole)
    assert history["dropped"][0].min(axis=0).tolist() == [0, 101, 101, 101]
    assert history["dropped"][1].max() == 0
    assert state.server.stepping.tolist() == [[True] * 3, [False] * 3]
    one = jax.tree.map(lambda leaf: leaf[1], grid)
    alone, _ = after("mime", one, who, size, KEYS[1], **whole)
    found = jax.tree.map(lambda leaf: leaf[1, 1], state.server)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), found, alone.server)


def arrays_of_everybody(text):
    """Return arrays of a program with all rows and a further axis."""
    return set(re.findall(rf"\w+\[(?:\d+,)+{NUM_ROWS}\b[\d,]*\]", text))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cohort"), PAIRS)
def test_a_sweep_copies_nobody(name, cohort):
    algorithm, row = build(name), "fed_pd" if name == "variance_reduced" else name
    who, chunk_size = COHORTS[cohort]
    grid = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), as_arrays(rates(row)))
    steps = (1,) if name in ("fed_gd", "prox_skip") else (2, 2)
    plan = fcojax.Plan(fcojax.local_steps(*steps), who, client_chunk_size=chunk_size)
    keys = jax.random.split(jax.random.key(0), 3)

    def started(keys):
        return fcojax.start(algorithm, grid, point(row), DATA, keys, plan)

    state = jax.eval_shape(started, keys)
    program = advance_compiled.trace(Program(algorithm, plan), grid, DATA, state, None)
    assert not arrays_of_everybody(str(program.jaxpr))


def test_a_branch_on_a_mapped_condition_is_seen():
    rows = jax.tree.leaves(DATA.examples)[0]

    def first(condition, place):
        return jax.lax.cond(condition, lambda: rows[place], lambda: rows[0])

    program = jax.make_jaxpr(jax.vmap(first))(jnp.ones(3, bool), jnp.arange(3))
    assert any(f"[3,{NUM_ROWS}" in found for found in arrays_of_everybody(str(program)))
