"""Populations on disk, read block by block, give the same numbers as in memory.

Sums may be compiled in another order, which changes the last bit.
"""

import shutil

import chex
import jax
import numpy as np
import pytest

import fcojax
from fcojax.problems import memory, stored
from tests.support import federations

KEY = jax.random.key(3)
RAGGED = (5, 2, 7, 3, 6, 4, 4, 9, 2, 5, 6, 8)
COHORTS = {
    "uniform": fcojax.uniform_cohort(cohort_size=3),
    "coins": fcojax.coin_flips(0.2),
    "by size": fcojax.weighted_cohort(cohort_size=2),
    "everyone": fcojax.everyone(),
}
LOSSES = fcojax.dropout(0.3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("stream") / "population"
    fcojax.save_clients(fcojax.from_clients(federations.clients(RAGGED), "examples"), path)
    return path


def scaffold():
    chosen = fcojax.algorithms.scaffold(federations.loss, federations.kernel_l1())
    return chosen, chosen.hparams_type(client_lr=0.02, penalty_scale=0.1)


def both(folder, cohort, work, hparams=None, key=KEY, rounds=(6, 3)):
    """Return state and history of a population in memory, and of the same on disk."""
    (chosen, usual), start = scaffold(), federations.start()
    hparams, data = hparams or usual, fcojax.open_clients(folder)
    plan = fcojax.Plan(work, cohort, LOSSES, client_chunk_size=2)
    resident = data.to_device()
    state = fcojax.start(chosen, hparams, start, resident, key, plan)
    expected = fcojax.advance(
        chosen,
        hparams,
        state,
        resident,
        plan,
        num_rounds=rounds[0],
        eval_every=rounds[1],
        observe=federations.whole_model,
    )
    stream = fcojax.Stream(data, plan, eval_every=rounds[1], num_seeds=np.size(key))
    state = stream.start(chosen, hparams, start, key)
    found = stream.advance(
        chosen, hparams, state, num_rounds=rounds[0], observe=federations.whole_model
    )
    return found, expected


def equal(found, expected):
    found, expected = (
        jax.tree.map(np.asarray, (state._replace(key=()), history))
        for state, history in (found, expected)
    )
    chex.assert_trees_all_close(found, expected, rtol=1e-13, atol=1e-15)


def test_the_same_numbers_as_in_memory(folder):
    equal(*both(folder, COHORTS["uniform"], fcojax.local_epochs(1, 3)))


@pytest.mark.slow
def test_seeds_and_points_stream_together(folder):
    grid = fcojax.grid.product(type(scaffold()[1]), client_lr=[0.01, 0.02], penalty_scale=[0.1])
    keys = jax.random.split(KEY, 2)
    # A block has one round, because two rounds of both seeds fill the buffers.
    equal(*both(folder, COHORTS["uniform"], fcojax.local_steps(2, 2), grid, keys, rounds=(4, 1)))


def test_all_blocks_are_one_program_and_a_stream_may_go_back_and_change_its_run(folder, caplog):
    chosen, hparams = scaffold()
    plan = fcojax.Plan(fcojax.local_steps(1), COHORTS["uniform"])
    stream = fcojax.Stream(fcojax.open_clients(folder), plan, eval_every=1)
    one, other = (
        stream.start(chosen, hparams, federations.start(), jax.random.key(seed)) for seed in (3, 9)
    )
    before = jax.tree.map(np.asarray, one._replace(key=()))

    def after(state, num_rounds):
        return stream.advance(chosen, hparams, state, num_rounds=num_rounds)[0]

    with jax.log_compiles():
        ends = [after(one, 2), after(one, 2), after(other, 2)]
        half = after(other, 1)
        after(one, 1)  # and reads its second block ahead
        in_turn = after(half, 1)
    chex.assert_trees_all_equal(one._replace(key=()), before)
    ends, in_turn = [end._replace(key=()) for end in ends], in_turn._replace(key=())
    chex.assert_trees_all_equal(ends[0], ends[1])
    chex.assert_trees_all_equal(ends[2], in_turn)
    assert sum("compilation of jit(advance_traced)" in text for text in caplog.messages) == 1


def test_a_state_of_another_population_is_refused_before_anything_is_read(folder, monkeypatch):
    chosen, hparams = scaffold()
    stream = fcojax.Stream(fcojax.open_clients(folder), fcojax.local_steps(1), eval_every=1)
    state = stream.start(chosen, hparams, federations.start(), KEY)
    few = state._replace(clients=jax.tree.map(lambda rows: rows[:5], state.clients))
    monkeypatch.setattr(stream, "_take", None)
    with pytest.raises(ValueError, match=r"state\.clients"):
        stream.advance(chosen, hparams, few, num_rounds=1)


def test_only_the_rows_of_members_are_read_and_a_shorter_file_is_told(folder, tmp_path):
    data = fcojax.open_clients(folder)
    array = data.examples["x"]
    assert memory.file_of(array) == (str(folder / "examples.0.npy"), 128)
    assert memory.file_of(np.ones(3)) is None
    members = np.array([1, 4, 11])
    starts, sizes = np.asarray(data.offsets)[members], np.array(RAGGED)[members]
    out = np.zeros((30, federations.DIM))
    stored.read_rows(array, starts, sizes, out)
    np.testing.assert_array_equal(out[: sizes.sum()], data.rows_of(members)[0]["x"])
    copied = tmp_path / "copy"
    fcojax.save_clients(data, copied)
    stream = fcojax.Stream(fcojax.open_clients(copied), fcojax.local_steps(1), eval_every=1)
    file = copied / "examples.0.npy"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ValueError, match="examples.0.npy"):
        stream._read(np.arange(12), stream._buffer())
    file.unlink()
    with pytest.raises(FileNotFoundError, match="missing; pass"):
        stream._read(np.arange(12), stream._buffer())
    shutil.rmtree(copied)
    with pytest.raises(FileNotFoundError, match="missing; pass"):
        fcojax.open_clients(copied)


@pytest.mark.parametrize("width", [1, 400])  # short and long runs of rows
@pytest.mark.parametrize("order", ["ascending", "as drawn", "all"])
def test_runs_of_rows_are_the_rows_they_name_however_near_they_lie(tmp_path, width, order):
    array = np.arange(3000.0 * width).reshape(3000, width)
    np.save(tmp_path / "rows.npy", array)
    rng = np.random.default_rng(0)
    starts = rng.choice(300, 300 if order == "all" else 60, replace=False) * 10
    if order != "as drawn":
        starts.sort()
    sizes = rng.integers(1, 11, starts.size)
    out = np.full((sizes.sum() + 1, width), -1.0)
    stored.read_rows(np.load(tmp_path / "rows.npy", mmap_mode="r"), starts, sizes, out)
    runs = [array[a : a + size] for a, size in zip(starts, sizes, strict=True)]
    np.testing.assert_array_equal(out[:-1], np.concatenate(runs))
    assert (out[-1] == -1).all()
