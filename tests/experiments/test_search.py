"""Successive halving: the comparisons, the points that continue, and unchanged curves."""

import numpy as np
import pytest

from experiments.execution.search import rungs, survivors
from experiments.execution.sweep_runner import SweepRunner
from experiments.report.summary import Criterion
from fcojax.engine import placed
from tests.experiments.toys import Killed, Toy, killed_after

LEAST = Criterion("objective", "min", 10)


@pytest.mark.parametrize("num_points", [1, 2, 3, 9, 49, 1000])
@pytest.mark.parametrize("num_rounds", [5, 40, 500])
def test_rungs_are_looks_that_grow_threefold_and_end_with_the_run(num_points, num_rounds):
    found = rungs("halving", num_points, num_rounds, 5)
    assert found[-1] == num_rounds and sorted(set(found)) == list(found)
    assert all(rung % 5 == 0 for rung in found)
    left = num_points
    for _ in found[:-1]:
        left = -(-left // 3)
    assert left >= 1 and (num_points < 3 or len(found) > 1 or num_rounds < 15)
    assert rungs("grid", num_points, num_rounds, 5) == (num_rounds,)


def rows_of(values, rung=20):
    """Two evaluations of each point, the second with these objectives; None for a diverged one."""
    return [
        {"client_lr": float(point), "seed": 0, "round": at, "objective": value, "status": status}
        for point, last in enumerate(values)
        for at, value, status in (
            (0, 9.0, ""),
            (rung, last, "diverged at round 20" if last is None else ""),
        )
    ]


def test_the_best_third_goes_on_and_what_diverged_does_not():
    rows = rows_of([3.0, 1.0, None, 2.0, 5.0])
    assert survivors(rows, ["client_lr"], LEAST, 20) == {(1.0,), (3.0,)}
    most = LEAST._replace(goal="max")
    assert survivors(rows, ["client_lr"], most, 20) == {(4.0,), (0.0,)}


def test_later_rows_and_points_that_were_left_behind_do_not_count():
    rows = rows_of([3.0, 1.0]) + [row for row in rows_of([0.0], 10) if row["round"] <= 10]
    rows += [{"client_lr": 0.0, "seed": 0, "round": 40, "objective": 0.0, "status": ""}]
    rows = [row | {"client_lr": 7.0} if i in (4, 5) else row for i, row in enumerate(rows)]
    assert survivors(rows, ["client_lr"], LEAST, 20) == {(1.0,)}


def swept(workdir, search):
    """Return summary and rows of a toy; two points side by side, so six run in three parts."""
    toy = Toy(
        algorithms=("fed_dual_avg",),
        num_rounds=45,
        search=search,
        client_lr=(0.001, 0.003, 0.01, 0.03, 0.1, 1e9),
    )
    shares = []
    found, rows, said = toy.run(
        workdir, size=2, share=lambda label, share, what="": shares.append(share)
    )
    assert shares[-1] == pytest.approx(1) and shares == sorted(shares) and not said
    return found, rows


@pytest.mark.slow
def test_devices_share_the_seeds_of_one_point_and_a_killed_run_goes_on_with_one(
    tmp_path, monkeypatch
):
    """Three seeds on two devices are padded to four; the last has no rows or checkpoint."""
    toy = Toy(client_lr=(0.01,), seeds=(0, 1, 2))
    seen = []

    def counted(placed, grid, *arguments):
        seen.append((placed.keys.size, placed.data.num_sweep_shards))
        return advance(placed, grid, *arguments)

    advance = placed._advance
    monkeypatch.setattr(placed, "_advance", counted)
    shared = toy.run(tmp_path / "shared")[1]
    assert set(seen) == {(4, 2)}
    with pytest.raises(Killed):
        toy.run(tmp_path / "killed", share=killed_after(2))
    assert toy.run(tmp_path / "killed")[1] == shared
    with pytest.raises(Killed):
        toy.run(tmp_path / "moved", share=killed_after(2))
    seen.clear()
    monkeypatch.setattr(
        placed, "spread", lambda algorithm, first, params, data, plan, **sizes: data
    )
    moved, alone = toy.run(tmp_path / "moved")[1], toy.run(tmp_path / "alone")[1]
    assert set(seen) == {(3, 1)}
    for rows in (moved, alone):
        assert [row["seed"] for row in rows] == [row["seed"] for row in shared]
        objectives = [[row["objective"] for row in each] for each in (rows, shared)]
        np.testing.assert_allclose(*objectives, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [None, 7, 10])
def test_early_rounds_are_evaluated_one_by_one_and_change_nothing(tmp_path, killed):
    """This holds for a run that is killed, before or after the last one, and resumed."""
    few = Toy(eval_all_until=0).run(tmp_path / "few")[1]
    toy, folder = Toy(eval_all_until=8), tmp_path / "many"
    if killed is not None:
        with pytest.raises(Killed):
            toy.run(folder, share=killed_after(killed))
    many = toy.run(folder)[1]
    by_point = {}
    for row in many:
        by_point.setdefault(row["client_lr"], []).append(row["round"])
    assert list(by_point.values()) == [[*range(9), 10, 15, 20]] * 3
    found = {(row["client_lr"], row["round"]): row["objective"] for row in many}
    expected = {(row["client_lr"], row["round"]): row["objective"] for row in few}
    assert {place: found[place] for place in expected} == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_halving_finds_the_best_point_and_does_not_change_its_curve(tmp_path):
    whole, every_row = swept(tmp_path / "grid", "grid")
    found, some_rows = swept(tmp_path / "halving", "halving")
    # The diverged point has no rows afterwards.
    assert whole["finished"] == 5 and len(whole["diverged"]) == 1
    # Six points to round 15, two of them to the end.
    assert found["finished"] == 2
    assert sum(row["client_lr"] != 1e9 for row in some_rows) == 5 * 4 + 2 * 6
    assert found["best"] == whole["best"]
    known = {(row["client_lr"], row["round"]): row for row in every_row}
    survivors = {row["client_lr"] for row in some_rows if row["round"] == 45}
    assert 1e9 not in survivors
    for row in some_rows:
        if row["client_lr"] in survivors:
            expected = known[row["client_lr"], row["round"]]
            assert row["status"] == expected["status"]
            numbers = {k: v for k, v in expected.items() if not isinstance(v, str)}
            assert {k: row[k] for k in numbers} == pytest.approx(numbers, rel=1e-9)


@pytest.mark.slow
def test_a_grid_is_widened_until_the_best_point_is_inside_also_after_a_kill(tmp_path):
    toy = Toy(extend=True, client_lr=(0.003, 0.009))
    found, rows, _ = toy.run(tmp_path / "whole")
    rates = sorted({row["client_lr"] for row in rows})
    assert len(rates) > 2 and rates[1:] == pytest.approx([3 * rate for rate in rates[:-1]])
    assert found["edges"] == {} and rates[0] < found["best"]["client_lr"] < rates[-1]
    with pytest.raises(Killed):
        toy.run(tmp_path / "killed", share=killed_after(8))
    assert toy.run(tmp_path / "killed")[:2] == (found, rows)


@pytest.mark.parametrize(
    ("scores", "runs"),
    [
        ([4.0, 2.0, 1.99, 1.0], 3),  # a flat valley ends it
        ([4.0, 2.0, 1.0, 1.0, 0.5], 4),
        ([2.0**-k for k in range(7)], 7),
    ],
)
def test_a_grid_is_widened_while_that_improves_the_score(tmp_path, monkeypatch, scores, runs):
    """The best point is always at the largest rate, and each wider grid has the next score."""
    toy, grids = Toy(extend=True), []

    def run(runner, job):
        grids.append(job.grid.client_lr)
        score = scores[len(grids) - 1]
        return {"score": score, "edges": {"client_lr": "largest"}, "seconds": 0.0}

    monkeypatch.setattr(SweepRunner, "_run_grid", run)
    assert toy.run(tmp_path)[0]["score"] == scores[runs - 1]
    assert [grid.size for grid in grids] == [3 + k for k in range(runs)]
