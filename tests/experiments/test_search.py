"""Successive halving: the comparisons, the points that continue, and unchanged curves."""

import jax
import numpy as np
import pytest

import fcojax
from configs import lasso
from experiments.execution import sweep_runner
from experiments.execution.search import rungs, survivors
from experiments.report.summary import Criterion
from fcojax.engine import placed
from fcojax.extend import take
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


@pytest.mark.slow
def test_rates_that_change_over_rounds_survive_a_crash(tmp_path):
    """Rows have the rate of the grid; the rounds have the rates of the schedules."""
    toy = Toy(
        algorithms=("fed_dual_avg",),
        client_lr=(0.003, 0.01),
        client_schedule="staircase:5,0.5",
        server_schedule="warm_up:4*inverse:10",
    )
    whole = toy.run(tmp_path / "whole")
    with pytest.raises(Killed):
        toy.run(tmp_path / "killed", share=killed_after(2))
    assert toy.run(tmp_path / "killed")[:2] == whole[:2]
    rounds = np.arange(20)
    for point, rate in enumerate((0.003, 0.01)):
        hparams = take(toy.job.grid, point)._replace(
            client_lr=fcojax.schedule(rate * 0.5 ** (rounds // 5)),
            server_lr=fcojax.schedule(np.minimum(rounds + 1, 4) / 4 * 10 / (10 + rounds)),
        )
        one, data, plan = toy.job.algorithm, toy.job.train, toy.job.plan
        state = fcojax.start(one, hparams, toy.problem.init, data, jax.random.key(0), plan)
        _, history = fcojax.advance(
            one,
            hparams,
            state,
            data,
            plan,
            num_rounds=20,
            eval_every=5,
            observe=toy.observe,
            context=(data, toy.problem.validation),
        )
        found = [row["objective"] for row in whole[1] if row["client_lr"] == rate and row["round"]]
        np.testing.assert_allclose(found, history["objective"], rtol=1e-5)


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
def test_points_that_are_left_run_in_the_program_of_all(tmp_path, monkeypatch):
    """A grid runs in two halves; after half has diverged, one part of the same size is left."""
    calls = []

    def counted(placed, grid, *arguments):
        calls.append((int(arguments[1]), len(grid.client_lr)))
        return advance(placed, grid, *arguments)

    advance = placed._advance
    monkeypatch.setattr(placed, "_advance", counted)
    rates = (0.001, 0.002, 0.003, 0.005, 1e7, 1e8, 1e9, 1e10, 1e11)
    changes = {"client_lr": rates, "num_rounds": 60, "seeds": (0, 1)}
    toy = Toy(**changes)
    _, rows, _ = toy.run(tmp_path / "halves")
    (size,) = {size for _, size in calls}
    assert size in (5, 6)  # on one device and on two
    assert [rounds for rounds, _ in calls] == [0] * 2 + [5] * 4 + [5] * 10
    calls.clear()
    _, whole, _ = toy.run(tmp_path / "whole", size=len(rates))
    assert len({size for _, size in calls}) == 2  # all points, then the remaining ones
    columns = ("client_lr", "seed", "round", "status")
    assert [[row[c] for c in columns] for row in rows] == [
        [row[c] for c in columns] for row in whole
    ]
    finite = [(a["objective"], b["objective"]) for a, b in zip(rows, whole, strict=True)]
    assert all(a == pytest.approx(b, rel=1e-5) for a, b in finite if None not in (a, b))
    for number in (1, 2, 5):
        with pytest.raises(Killed):
            toy.run(tmp_path / f"killed{number}", share=killed_after(number))
        assert toy.run(tmp_path / f"killed{number}")[1] == rows


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
def test_rows_have_the_kkt_violation_of_the_model(tmp_path):
    """In numpy: for l1, each entry's distance of minus the gradient from the subdifferential."""
    toy = Toy(certificate=True, algorithms=("fed_mid_osp",), client_lr=(0.01,))
    rows = toy.run(tmp_path)[1]
    with np.load(tmp_path / "models" / "fed_mid_osp.npz") as arrays:
        kernel, bias = arrays["kernel"].astype(float), arrays["bias"].astype(float)
    x, y = (np.asarray(toy.problem.train.examples[name], float) for name in ("x", "y"))
    slope = 2 * (x @ kernel.ravel() + bias - y)
    along, strength = (x.T @ slope / len(y)).reshape(kernel.shape), 0.5
    off = np.where(
        kernel != 0, np.abs(along + strength * np.sign(kernel)), np.abs(along) - strength
    )
    expected = np.sqrt((np.maximum(off, 0) ** 2).sum() + slope.mean() ** 2)
    assert rows[-1]["violation"] == pytest.approx(expected, rel=1e-4)
    assert "violation" not in Toy().run(tmp_path / "without")[1][-1]


@pytest.mark.slow
def test_rows_have_the_spread_of_the_loss_over_the_clients_and_of_their_own_models(tmp_path):
    """In numpy, from the common model that the run saves."""
    changes = {"client_lr": (0.01,), "prox_scale": (0.1,)}
    toy = Toy(by_client=True, algorithms=("ditto",), **changes)
    summary, rows, _ = toy.run(tmp_path)
    with np.load(tmp_path / "models" / "ditto.npz") as arrays:
        kernel, bias = arrays["kernel"].astype(float), arrays["bias"].astype(float)
    x, y = (np.asarray(toy.problem.train.examples[name], float) for name in ("x", "y"))
    losses = ((x @ kernel.ravel() + bias - y) ** 2).reshape(4, 8).mean(axis=1)
    last = summary["last"]
    expected = {"loss_mean": losses.mean(), "loss_worst": losses.max()}
    expected |= {f"loss_p{share}": np.percentile(losses, share) for share in (10, 50, 90)}
    assert {name: last[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert last["own_loss_mean"] < last["loss_mean"] and last["own_loss_gain"] > 0.5
    assert {f"own_{name}" for name in expected} <= rows[0].keys()
    fcojax.save_clients(toy.problem.train, tmp_path / "clients")
    on_disk = toy.problem._replace(train=fcojax.open_clients(tmp_path / "clients"))
    sweep = lasso.EXPERIMENT._replace(problem=lambda config: on_disk)
    stored = Toy(sweep, by_client=True, algorithms=("ditto",), **changes)
    _, rows, _ = stored.run(tmp_path / "stored")
    assert {name: rows[-1][name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert not any(name.startswith("own_") for name in rows[-1])


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
    ("scores", "runs", "said"),
    [
        ([4.0, 2.0, 1.99, 1.0], 3, "improved it by less than 1%"),  # a flat valley ends it
        ([4.0, 2.0, 1.0, 1.0, 0.5], 4, "improved it by less than 1%"),
        ([2.0**-k for k in range(7)], 7, "after 6 extensions"),
    ],
)
def test_a_grid_is_widened_while_that_improves_the_score(tmp_path, monkeypatch, scores, runs, said):
    """The best point is always at the largest rate, and each wider grid has the next score."""
    toy, grids = Toy(extend=True), []

    class Run:
        def __init__(self, runner, job):
            grids.append(job.grid.client_lr)

        def run(self):
            score = scores[len(grids) - 1]
            return {"score": score, "edges": {"client_lr": "largest"}, "seconds": 0.0}

        def rows(self):
            return []

    monkeypatch.setattr(sweep_runner, "_JobRun", Run)
    monkeypatch.setattr(sweep_runner.RowStore, "replace", lambda store, label, rows: None)
    (tmp_path / "rows.jsonl").touch()
    found, _, messages = toy.run(tmp_path)
    assert [grid.size for grid in grids] == [3 + k for k in range(runs)]
    assert found["score"] == scores[runs - 1]
    assert len(messages) == 1 and said in messages[0]
