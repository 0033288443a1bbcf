"""What a run finds when it goes on: damaged checkpoints, rows that are gone, other parts."""

import contextlib
import functools
import itertools
import pathlib
import random
import shutil
import time
import tracemalloc

import jax
import numpy as np
import pytest

import fcojax
from experiments.execution import jobs
from experiments.process.errors import sentence
from experiments.report import rows as tidy
from experiments.storage.checkpoints import Checkpoints
from experiments.storage.row_store import RowStore
from fcojax.engine.state import State
from tests.experiments import survivor
from tests.experiments.toys import Killed, Toy, killed_after

slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def toy():
    """Client state, sampled cohorts, lost uploads and an uplink with residuals."""
    return Toy(survivor.EXPERIMENT, dropout_probability=0.2)


@pytest.fixture(scope="module")
def whole(toy, tmp_path_factory):
    """A finished run, with a checkpoint after each block of five rounds."""
    workdir = tmp_path_factory.mktemp("faults") / "whole"
    return workdir, *toy.run(workdir)


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "run")
    return tmp_path / "run"


def checkpoints(workdir):
    return {int(path.name): path for path in (workdir / "checkpoints/fed_dyn/0-2").iterdir()}


def model(workdir):
    return dict(np.load(workdir / "models" / "fed_dyn.npz"))


def same(found, whole):
    """Bit for bit."""
    assert found[0] == whole[1] and found[1] == whole[2]


@pytest.mark.slow
def test_the_last_three_checkpoints_are_kept_and_a_second_run_changes_nothing(toy, whole, copy):
    assert sorted(checkpoints(copy)) == [10, 15, 20] and whole[3] == []
    found = toy.run(copy)
    same(found, whole)
    assert found[2] == []


def files_of(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


@pytest.mark.long
def test_a_flipped_byte_in_any_file_is_noticed_or_does_not_matter(toy, whole, copy, tmp_path):
    """The rounds since the checkpoint before are run again, to the same numbers."""
    expected, noticed = model(whole[0]), 0
    for file in files_of(checkpoints(copy)[20]):
        workdir = tmp_path / "flipped"
        shutil.copytree(whole[0], workdir)
        path = checkpoints(workdir)[20] / file
        content = bytearray(path.read_bytes())
        if not content:
            shutil.rmtree(workdir)
            continue
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        found = toy.run(workdir)
        same(found, whole)
        jax_tree_equal(model(workdir), expected)
        noticed += any("is not used, because it" in sentence for sentence in found[2])
        shutil.rmtree(workdir)
    assert noticed >= 2


def jax_tree_equal(found, expected):
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize(
    "damage",
    [
        slow(lambda steps: (steps[20] / "_CHECKPOINT_METADATA").unlink()),
        slow(lambda steps: shutil.rmtree(steps[20] / "state")),
        slow(lambda steps: [truncate(path) for path in steps[20].rglob("*") if path.is_file()]),
        slow(lambda steps: [truncate(p) for step in steps.values() for p in step.rglob("*")]),
        slow(lambda steps: [shutil.rmtree(step) for step in steps.values()]),
    ],
    ids=["no notes", "no state", "truncated", "all of them", "none left"],
)
def test_what_is_damaged_falls_back_to_the_one_before(toy, whole, copy, damage):
    damage(checkpoints(copy))
    found = toy.run(copy)
    same(found, whole)
    jax_tree_equal(model(copy), model(whole[0]))
    assert sorted(checkpoints(copy))[-1] == 20


def truncate(path: pathlib.Path):
    if path.is_file():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines[:-3],
        slow(lambda lines: [*lines[:-1], lines[-1][:20]]),
        slow(lambda lines: lines[: len(lines) // 2]),
        slow(lambda lines: [*lines, lines[-1]]),
        slow(lambda lines: [*lines[:4], lines[4].replace(b"improving", b"converged"), *lines[5:]]),
        slow(lambda lines: [*lines[:4], b"\0\0\n", *lines[5:]]),
        slow(lambda lines: [*lines, lines[-1].replace(b"0.03", b"0.05")]),
        slow(lambda lines: []),
    ],
    ids=["cut", "half a line", "halved", "doubled", "changed", "zeros", "not ours", "emptied"],
)
def test_rows_that_are_not_as_they_were_are_made_again(toy, whole, copy, damage):
    path = copy / "rows.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    changed = damage(lines)
    assert changed != lines
    path.write_bytes(b"".join(changed))
    same(toy.run(copy), whole)


def test_rows_that_were_deleted_are_made_again(toy, whole, copy):
    (copy / "rows.jsonl").unlink()
    found = toy.run(copy)
    same(found, whole)
    assert "rows.jsonl does not hold the rows" in found[2][0]


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(2, 1), (1, 2), (3, 1), (1, 3)])
def test_a_run_that_is_killed_goes_on_with_other_parts(toy, whole, tmp_path, sizes):
    """All points are finished, wherever it was and whatever the parts were.

    The numbers are those of one part but for rounding, which depends on how many run side by side.
    """
    # Two devices have a point each, so that no part is smaller than two.
    for blocks in range(0, 4 * -(-3 // max(sizes[0], 2)), 3):
        workdir = tmp_path / f"{blocks}"
        with pytest.raises(Killed):
            toy.run(workdir, size=sizes[0], around_block=killed_after(blocks))
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


@pytest.mark.long
def test_points_that_diverged_cost_nothing_any_more_and_do_not_change_the_others(
    tmp_path, monkeypatch
):
    """Also if the run is killed after they were left out."""
    sizes, advance = [], jobs.advance_donating
    monkeypatch.setattr(
        jobs,
        "advance_donating",
        functools.wraps(advance)(lambda *args: sizes.append(len(args[1][0])) or advance(*args)),
    )
    toy = Toy(client_lr=(0.003, 1e9, 1e10, 1e11), num_rounds=70, algorithms=("fed_avg",))
    summary, rows, _ = toy.run(tmp_path / "whole")
    # The first look, and then blocks: the points left, one for each of two devices.
    assert sizes == [4] * 3 + [2] * 12
    assert summary["finished"] == 1 and len(summary["diverged"]) == 3
    assert len(rows) == 15 + 3 * 2
    alone = Toy(client_lr=(0.003,), num_rounds=70, algorithms=("fed_avg",))
    _, expected, _ = alone.run(tmp_path / "alone")
    for row, wanted in zip([r for r in rows if r["client_lr"] < 1], expected, strict=True):
        assert row["objective"] == pytest.approx(wanted["objective"], rel=1e-6)
    for blocks in (1, 3, 8):
        workdir = tmp_path / f"{blocks}"
        with pytest.raises(Killed):
            toy.run(workdir, around_block=killed_after(blocks))
        assert toy.run(workdir)[:2] == (summary, rows)
        jax_tree_equal(
            dict(np.load(workdir / "models/fed_avg.npz")),
            dict(np.load(tmp_path / "whole/models/fed_avg.npz")),
        )


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fed_avg", "fed_dyn"])
def test_a_block_is_compiled_once_for_each_number_of_points(algorithm, tmp_path, caplog):
    """All points and those left; when the run goes on, those left alone.

    Blocks of one round and of five are one program, which also evaluates the start point.
    """
    changes = {"num_rounds": 70, "eval_all_until": 3, "algorithms": (algorithm,)}
    for blocks, programs in ((6, 2), (9, 1)):
        toy = Toy(client_lr=(0.003, 1e9, 1e10, 1e11), **changes)
        caplog.clear()
        with jax.log_compiles(), pytest.raises(Killed):
            toy.run(tmp_path, around_block=killed_after(blocks))
        compiled = [text for text in caplog.messages if "XLA compilation of jit(" in text]
        assert sum("jit(advance" in text for text in compiled) == programs
        assert not [text for text in compiled if "jit(look" in text]


def test_rows_are_on_disk_before_a_checkpoint_that_counts_on_them(toy, tmp_path, monkeypatch):
    on_disk, steps = [], []
    sync, save = RowStore.sync, Checkpoints.save

    def syncs(store):
        sync(store)
        on_disk.append(store.path.read_bytes())

    def saves(writer, step, *others, **options):
        assert on_disk.pop() == (tmp_path / "rows.jsonl").read_bytes()
        steps.append(step)
        return save(writer, step, *others, **options)

    monkeypatch.setattr(RowStore, "sync", syncs)
    monkeypatch.setattr(Checkpoints, "save", saves)
    toy.run(tmp_path)
    assert set(steps) == {5, 10, 15, 20}


@pytest.mark.slow
def test_a_job_all_of_whose_points_diverge_ends_with_that_verdict(tmp_path):
    toy = Toy(client_lr=(1e9, 1e10), num_rounds=70, algorithms=("fed_avg",))
    found = toy.run(tmp_path / "all")
    assert found[0]["verdict"].startswith("diverged by round 5")
    assert not (tmp_path / "all/models").exists()
    assert toy.run(tmp_path / "all") == found


def test_a_run_that_is_killed_at_random_blocks_is_the_same_bit_for_bit(toy, whole, tmp_path):
    rng = random.Random(0)
    for _ in range(3):
        with pytest.raises(Killed):
            toy.run(tmp_path, around_block=killed_after(rng.randrange(2)))
    same(toy.run(tmp_path), whole)
    jax_tree_equal(model(tmp_path), model(whole[0]))


@pytest.mark.slow
@pytest.mark.parametrize("feedback", ["ef21", "ef14"])
@pytest.mark.parametrize("links", [("uplink",), ("uplink", "downlink")], ids=len)
def test_what_links_remember_survives_a_kill_and_the_loss_of_points(links, feedback, tmp_path):
    """What the server keeps, also of its broadcasts, and the residuals of clients.

    Down go, to all four clients, two of seven numbers with their places and a fraction.
    """
    changes = {"client_lr": (0.003, 0.01, 1e9, 1e10), "num_rounds": 70}
    compressed = dict.fromkeys(links, f"top_k:0.3,{feedback}")
    toy = Toy(algorithms=("fed_avg",), **changes | compressed)
    whole = toy.run(tmp_path / "whole")
    plain = Toy(algorithms=("fed_avg",), **changes).run(tmp_path / "plain")
    assert whole[1][-1]["bytes_up"] < 0.7 * plain[1][-1]["bytes_up"]
    assert whole[1][-1]["objective"] != plain[1][-1]["objective"]
    down = 70 * (4 * (2 * 4 + 1 + 8) if "downlink" in links else 2 * 7 * 4)
    assert whole[0]["last"]["bytes_down"] == whole[1][-1]["bytes_down"] == down
    for blocks in (1, 6):
        with pytest.raises(Killed):
            toy.run(tmp_path / f"{blocks}", around_block=killed_after(blocks))
        assert toy.run(tmp_path / f"{blocks}") == whole


@pytest.mark.slow
@pytest.mark.parametrize("search", ["grid", "halving"])
def test_a_grid_that_was_widened_is_not_run_again(tmp_path, search):
    """Also its new points go on from their checkpoints."""
    changes = {"num_rounds": 30, "extend": True, "search": search}
    toy = Toy(client_lr=(0.0003, 0.001), algorithms=("fed_avg",), **changes)
    blocks = []

    def counting(block):
        blocks.append(block)
        return contextlib.nullcontext()

    whole = toy.run(tmp_path / "whole", around_block=counting)
    assert len(blocks) > 6 and whole[0]["best"]["client_lr"] > 0.003
    assert toy.run(tmp_path / "whole", around_block=killed_after(0)) == whole
    with pytest.raises(Killed):
        toy.run(tmp_path / "killed", around_block=killed_after(len(blocks) - 1))
    assert toy.run(tmp_path / "killed", around_block=killed_after(2)) == whole


@pytest.mark.slow
@pytest.mark.parametrize("block", [0, 1, 3])
def test_a_folder_that_is_removed_is_told_and_the_run_starts_over(toy, whole, tmp_path, block):
    workdir, blocks = tmp_path / "run", iter(range(9))

    def removing(_):
        if next(blocks) == block:
            workdir.rename(tmp_path / "elsewhere")  # atomic, where removing would be a race
        return contextlib.nullcontext()

    with pytest.raises(Exception) as error:
        toy.run(workdir, around_block=removing)
    told = sentence(error.value)
    assert str(workdir) in told and "missing or was removed" in told and len(told) < 300
    same(toy.run(workdir), whole)


@pytest.mark.slow
def test_clients_left_on_disk_stream_through_the_launcher_and_resume(tmp_path, monkeypatch):
    """To the rows of those in memory, on one device up to rounding; a shorter file is told.

    Where they take little memory they are read once and kept.
    """
    # More clients than a block has room for.
    changes = {"dropout_probability": 0.2, "client_lr": (0.01,), "num_clients": 16}
    resident = Toy(survivor.EXPERIMENT, **changes)
    fcojax.save_clients(resident.problem.train, tmp_path / "clients")

    def problem(config):
        return resident.problem._replace(train=fcojax.open_clients(tmp_path / "clients"))

    toy = Toy(survivor.EXPERIMENT._replace(problem=problem), **changes)
    summary, rows, _ = resident.run(tmp_path / "resident")

    def as_in_memory(found):
        for row, wanted in zip(found[1], rows, strict=True):
            numbers = {k: v for k, v in wanted.items() if not isinstance(v, str)}
            assert {k: row[k] for k in numbers} == pytest.approx(numbers, rel=1e-9)

    as_in_memory(toy.run(tmp_path / "kept"))
    monkeypatch.setattr("experiments.execution.jobs.KEPT", 0.0)
    found = toy.run(tmp_path / "whole")
    as_in_memory(found)
    with pytest.raises(Killed):
        toy.run(tmp_path / "killed", around_block=killed_after(2))
    assert toy.run(tmp_path / "killed") == found

    def truncating(block):
        if block == 1:
            truncate(tmp_path / "clients/examples.0.npy")
        return contextlib.nullcontext()

    with pytest.raises(ValueError, match="examples.0.npy has become shorter"):
        toy.run(tmp_path / "unreadable", around_block=truncating)
    assert len(tidy.load(tmp_path / "unreadable" / "rows.jsonl")) >= 2


@pytest.mark.long
@pytest.mark.parametrize("calls", [60, 150])
def test_a_clock_that_jumps_by_a_year_loses_no_checkpoint(tmp_path, monkeypatch, calls):
    now, asked = time.time, itertools.count()
    monkeypatch.setattr(time, "time", lambda: now() + (next(asked) >= calls) * 365 * 86400.0)
    writer = Checkpoints(tmp_path / "0-0", lambda message: pytest.fail(message))
    with contextlib.closing(writer):
        for step in (5, 10, 15):
            writer.save(step, State(np.full(9, step), (), (), np.array(step), np.ones(2)), {})
    assert next(asked) > calls and writer.rounds() == [15, 10, 5]
    for step in (5, 10, 15):
        (values, *_) = writer.load(step) or pytest.fail("damaged")
        np.testing.assert_array_equal(values, np.full(9, step))


@pytest.mark.slow
def test_a_checkpoint_takes_the_memory_of_its_states_once(tmp_path):
    states = State(np.arange(2_000_000.0), (), (), np.array(5), np.ones(2))
    with contextlib.closing(Checkpoints(tmp_path / "0-0", pytest.fail)) as writer:
        tracemalloc.start()
        try:
            writer.save(5, states, {})
            states.server[:] = 0.0  # as the next block overwrites it
            writer.wait()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1.5 * states.server.nbytes
        (values, *_) = writer.load(5) or pytest.fail("damaged")
    np.testing.assert_array_equal(values, np.arange(2_000_000.0))
