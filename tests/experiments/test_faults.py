"""Resumed runs with damaged checkpoints, missing rows, or different parts."""

import errno
import os
import pathlib
import random
import shutil
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from experiments.report import rows as tidy
from experiments.storage import checkpoints
from experiments.storage.row_store import RowStore
from tests.experiments import survivor
from tests.experiments.toys import Killed, Toy, killed_after


@pytest.fixture(scope="module")
def toy():
    """A toy with client state, sampled cohorts, lost uploads and error feedback."""
    return Toy(survivor.EXPERIMENT)


@pytest.fixture(scope="module")
def whole(toy, tmp_path_factory):
    """Return a finished run with a checkpoint after each block of five rounds."""
    workdir = tmp_path_factory.mktemp("faults") / "whole"
    return workdir, *toy.run(workdir)


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    return tmp_path / "run"


CHECKPOINT = "checkpoints/fed_dyn/0-2.npz"


def model(workdir):
    return dict(np.load(workdir / "models" / "fed_dyn.npz"))


def same(found, whole):
    """The results are equal bit for bit."""
    # A support that changes at the end is final from NaN, which ``plain`` turns into None.
    assert tidy.plain(found[0]) == tidy.plain(whole[1]) and found[1] == whole[2]


@pytest.mark.slow
def test_a_second_run_changes_nothing(toy, whole, copy):
    found = toy.run(copy)
    same(found, whole)
    assert found[2] == whole[3] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage", [pathlib.Path.unlink, lambda path: truncate(path), lambda path: flip_a_bit(path)]
)
def test_without_a_sound_checkpoint_the_points_start_over(toy, whole, copy, damage):
    damage(copy / CHECKPOINT)
    found = toy.run(copy)
    same(found, whole)
    chex.assert_trees_all_equal(model(copy), model(whole[0]))
    assert (copy / CHECKPOINT).exists()


def truncate(path: pathlib.Path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: pathlib.Path):
    """Change one bit of the numbers of the last array."""
    found = bytearray(path.read_bytes())
    found[found.index(b"PK\x01\x02") - 1] ^= 1  # before the directory of the archive
    path.write_bytes(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage", [lambda lines: lines[:-3], lambda lines: lines[: len(lines) // 2]]
)
def test_lost_rows_are_made_again(toy, whole, copy, damage):
    path = copy / "rows.jsonl"
    path.write_bytes(b"".join(damage(path.read_bytes().splitlines(keepends=True))))
    same(toy.run(copy), whole)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2, 1), (1, 2), (3, 1), (1, 3)])
def test_a_run_that_is_killed_goes_on_with_other_parts(toy, whole, tmp_path, sizes):
    """All points are finished, from any round and with any parts.

    The numbers equal those of one part up to rounding, which depends on the points side by side.
    """
    # Two devices have a point each, so a part has at least two.
    for blocks in range(0, 4 * -(-3 // max(sizes[0], 2)), 3):
        workdir = tmp_path / f"{blocks}"
        with pytest.raises(Killed):
            toy.run(workdir, size=sizes[0], share=killed_after(blocks))
        summary, rows, _ = toy.run(workdir, size=sizes[1])
        assert summary["finished"] == 3 and len(rows) == len(whole[2])
        rows, expected = (
            sorted(some, key=lambda row: (row["client_lr"], row["round"]))
            for some in (rows, whole[2])
        )
        for row, wanted in zip(rows, expected, strict=True):
            assert row["status"] == wanted["status"]
            numbers = {k: v for k, v in wanted.items() if not isinstance(v, str)}
            assert {k: row[k] for k in numbers} == pytest.approx(numbers, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fed_avg", "fed_dyn"])
def test_a_block_is_compiled_once_for_each_number_of_points(algorithm, tmp_path, caplog):
    """Programs for all points and for the remaining ones; a resumed run has only the latter.

    Blocks of one and of five rounds are one program, which also evaluates the start point.
    """
    changes = {"num_rounds": 70, "eval_all_until": 3, "algorithms": (algorithm,)}
    for blocks, programs in ((6, 2), (9, 1)):
        toy = Toy(client_lr=(0.003, 1e9, 1e10, 1e11), **changes)
        caplog.clear()
        with jax.log_compiles(), pytest.raises(Killed):
            toy.run(tmp_path, share=killed_after(blocks))
        compiled = [text for text in caplog.messages if "XLA compilation of jit(" in text]
        assert sum("jit(_block" in text for text in compiled) == programs
        # A placement reads the trace for all points, which is then the program's.
        assert sum("tracing _block for jit" in text for text in caplog.messages) == 2
        assert not [text for text in compiled if "jit(look" in text or "jit(start" in text]


@pytest.mark.slow
def test_an_accelerator_compiles_all_programs_ahead_and_none_twice(tmp_path):
    code = f"""if True:
        import pathlib, jax
        from tests.experiments.toys import Toy
        jax.default_backend = lambda: "gpu"
        with jax.log_compiles():
            Toy().run(pathlib.Path({os.fspath(tmp_path)!r}) / "run")
    """
    command = [sys.executable, "-c", code]
    ran = subprocess.run(
        command, cwd=pathlib.Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    lines = ran.stderr.splitlines()
    (begun,) = (at for at, line in enumerate(lines) if "Compiling jit(_block)" in line)
    # No part of the run, such as its first keys, comes before.
    assert not [line for line in lines[:begun] if "jit(copy)" in line]


def test_rows_are_on_disk_before_a_checkpoint_that_counts_on_them(toy, tmp_path, monkeypatch):
    on_disk, steps = [], []
    sync, save = RowStore.sync, checkpoints.save

    def syncs(store):
        sync(store)
        on_disk.append(store.path.read_bytes())

    def saves(path, state, notes):
        assert on_disk.pop() == (tmp_path / "rows.jsonl").read_bytes()
        steps.append(notes["round"])
        save(path, state, notes)

    monkeypatch.setattr(RowStore, "sync", syncs)
    monkeypatch.setattr("experiments.execution.sweep_runner.save", saves)
    toy.run(tmp_path)
    assert steps == [5, 10, 15, 20]


def test_a_state_of_any_type_is_saved(tmp_path):
    state = {"a": jnp.arange(3, dtype=jnp.bfloat16), "b": np.int8(1), "key": jax.random.key(3)}
    checkpoints.save(tmp_path / "0-1.npz", state, {"points": [1]})
    notes, leaves = checkpoints.load(tmp_path / "0-1.npz")
    assert notes == {"points": [1]}
    again = checkpoints.state_of(leaves, jax.eval_shape(lambda: state))
    for one, other in zip(*map(jax.tree.leaves, (again, state)), strict=True):
        assert one.dtype == other.dtype and (one == other).all()


def test_a_checkpoint_that_cannot_be_opened_is_kept(tmp_path, monkeypatch):
    """It may be sound."""
    checkpoints.save(tmp_path / "0-1.npz", {"a": np.ones(2)}, {})

    def refused(path):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(np, "load", refused)
    with pytest.raises(OSError, match="Too many open files"):
        checkpoints.load(tmp_path / "0-1.npz")


def test_a_run_that_is_killed_at_random_blocks_is_the_same_bit_for_bit(toy, whole, tmp_path):
    rng = random.Random(0)
    for _ in range(3):
        with pytest.raises(Killed):
            toy.run(tmp_path, share=killed_after(rng.randrange(2)))
    same(toy.run(tmp_path), whole)
    chex.assert_trees_all_equal(model(tmp_path), model(whole[0]))


def test_the_model_that_is_kept_is_that_of_the_best_point(toy, whole):
    folder, summary, rows, _ = whole
    params = {name: jnp.asarray(leaf) for name, leaf in model(folder).items()}
    loss = fcojax.problems.population_loss(toy.problem.loss, params, toy.problem.train)
    best = summary["best"]["client_lr"]
    assert best != 0.003  # the first
    (last,) = (row for row in rows if row["client_lr"] == best and row["round"] == 20)
    assert float(loss) == pytest.approx(last["loss"], rel=1e-5)


@pytest.mark.slow
def test_clients_left_on_disk_stream_through_the_launcher_and_resume(tmp_path, monkeypatch):
    """Streamed rows equal those in memory, up to rounding; small populations are kept."""
    # More clients than fit into a block.
    changes = {"client_lr": (0.01,), "num_clients": 16}
    resident = Toy(survivor.EXPERIMENT, **changes)
    fcojax.save_clients(resident.problem.train, tmp_path / "clients")

    def problem(config):
        return resident.problem._replace(train=fcojax.open_clients(tmp_path / "clients"))

    toy = Toy(survivor.EXPERIMENT._replace(problem=problem), **changes)
    summary, rows, _ = resident.run(tmp_path / "resident")

    def as_in_memory(found):
        for row, wanted in zip(found[1], rows, strict=True):
            numbers = {k: v for k, v in wanted.items() if not isinstance(v, str)}
            # In memory the loss is that of d + 2 rows, in float32.
            assert {k: row[k] for k in numbers} == pytest.approx(numbers, rel=1e-6)

    as_in_memory(toy.run(tmp_path / "kept"))
    monkeypatch.setattr("fcojax.engine.placed.KEPT", 0.0)
    found = toy.run(tmp_path / "whole")
    as_in_memory(found)
    with pytest.raises(Killed):
        toy.run(tmp_path / "killed", share=killed_after(2))
    assert toy.run(tmp_path / "killed") == found
