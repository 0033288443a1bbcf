"""A sweep block by block: equal to ``sweep``, with states that resume and dropped points."""

import jax
import numpy as np
import pytest

import fcojax
from fcojax.engine import placed as engine_placed
from fcojax.engine import run
from fcojax.extend import place, sweep_blocks, take_points
from tests.engine.test_stepper import (
    GRID,
    HPARAMS,
    KEYS,
    PLAN,
    assert_equal,
    data,
    fed_dyn,
    started,
)
from tests.support import federations

pytestmark = pytest.mark.gate

ENDS = [1, 2, 4, 6]
POINTS = np.arange(3)


def begun(key):  # one function, so that equal sweeps are one program
    return federations.start()


def placed(ends=ENDS, grid=GRID):
    return place(
        fed_dyn,
        grid,
        begun,
        data(),
        KEYS,
        PLAN,
        ends=ends,
        observe=federations.whole_model,
    )


def blocks(points=POINTS, ends=ENDS, **options):
    return [jax.device_get(b) for b in sweep_blocks(placed(), points, ends, **options)]


def test_blocks_are_those_of_a_sweep_and_the_last_one_has_its_state():
    found = blocks()
    assert [block.rounds for block in found] == [0, *ENDS]
    _, history = fcojax.sweep(
        fed_dyn,
        GRID,
        federations.start(),
        data(),
        KEYS,
        PLAN,
        num_rounds=6,
        observe=federations.whole_model,
    )
    for block in found[1:]:
        wanted = history["model"][:, :, block.rounds - 1]
        np.testing.assert_allclose(block.history["model"], wanted)
    assert [block.state is None for block in found] == [True] * 4 + [False]
    assert found[-1].state.round == 6


def test_a_few_of_many_points_begin_in_a_group_of_their_own():
    """Nine points run in groups of six, and three of them in one of four on two devices."""
    many = placed(grid=jax.tree.map(lambda column: np.repeat(column, 3), GRID))
    *_, last = sweep_blocks(many, POINTS, ENDS)
    (expected,) = blocks(POINTS[:1])[-1].history["model"]
    for model in last.history["model"]:
        np.testing.assert_allclose(model, expected, rtol=1e-9)


def test_a_state_resumes_also_some_of_its_points_to_the_last_bit():
    wanted = iter([False, True, False, False])
    whole = blocks(wants_state=lambda: next(wanted))
    state = whole[2].state
    rest = blocks(state=state, stored=POINTS)
    assert [block.rounds for block in rest] == [4, 6]
    assert_equal(rest[-1].state, whole[-1].state)
    some = np.array([0, 2])
    few = blocks(some, state=take_points(state, some), stored=some)
    assert few[-1].points.tolist() == [0, 2]
    for leaf, other in zip(*map(jax.tree.leaves, (few[-1].history, rest[-1].history)), strict=True):
        np.testing.assert_allclose(leaf, other[some], rtol=1e-9)


def test_seeds_that_fill_up_a_mesh_resume_with_keys_of_their_own():
    filled = placed()._replace(keys=KEYS[np.array([0, 1, 1])])
    state = engine_placed._with_seeds(filled, started(GRID, KEYS), 3)
    assert_equal(state.key, filled.keys)
    assert state.server.center["bias"].shape == (3, 3)


def test_states_of_clients_fill_up_a_mesh_with_the_last_row():
    there = fcojax.devices.shard_clients(data(), fcojax.devices.device_mesh(clients=2))
    rng, state = np.random.default_rng(0), started(GRID, KEYS)
    own = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape), state.clients)
    filled, whole = placed()._replace(data=there), state._replace(clients=own)
    (found,) = engine_placed._put(filled, whole, POINTS, [POINTS])
    rows = np.minimum(np.arange(2 * there.clients_per_shard), data().num_clients - 1)
    assert rows.size > data().num_clients
    for leaf, kept in zip(*map(jax.tree.leaves, (found.clients, own)), strict=True):
        np.testing.assert_array_equal(leaf, kept[:, :, rows])


def test_points_that_diverged_are_left_out_once_half_of_all_have_and_enough_blocks_are_left():
    asked, many = [], [*range(1, 13)]

    def is_over(point, rounds):
        asked.append((point, rounds))
        return point > 0 and rounds >= 1

    found = blocks(ends=many, is_over=is_over)
    # Results of block 2 affect block 3 at the earliest, so a resumed run has them too.
    assert [block.points.size for block in found] == [3, 3, 3] + [1] * 10
    assert [rounds for point, rounds in asked if point == 0] == [-1, *range(11)]
    assert [block.points.size for block in blocks(is_over=is_over)] == [3] * 5
    assert blocks(is_over=lambda point, rounds: rounds >= 2)[-1].rounds == 4


def test_a_block_is_dispatched_before_the_one_before_it_is_read(monkeypatch):
    said, advance = [], engine_placed._advance

    def advanced(placed, grid, state, num_rounds):
        said.append(f"dispatch {num_rounds}")
        return advance(placed, grid, state, num_rounds)

    monkeypatch.setattr(engine_placed, "_advance", advanced)
    for block in sweep_blocks(placed(), POINTS, ENDS):
        said.append(f"rounds {block.rounds}")
    assert said[:5] == ["dispatch 0", "rounds 0", "dispatch 1", "dispatch 1", "rounds 1"]
    assert said[5:] == ["dispatch 2", "rounds 2", "dispatch 2", "rounds 4", "rounds 6"]


def test_a_run_computes_the_next_block_while_the_last_one_is_reported(monkeypatch):
    said, advance = [], run.advance_donating

    def advanced(*arguments):
        said.append("dispatch")
        return advance(*arguments)

    monkeypatch.setattr(run, "advance_donating", advanced)
    start, plan = federations.start(), PLAN
    options = {"num_rounds": 6, "eval_every": 2, "progress": lambda rounds, _: said.append(rounds)}
    fcojax.run(fed_dyn, HPARAMS, start, data(), KEYS[0], plan, **options)
    assert said == ["dispatch", "dispatch", 2, "dispatch", 4, 6]
