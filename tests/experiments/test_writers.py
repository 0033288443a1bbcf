"""Metric writers: a table, a user's function, and errors."""

import csv
import sys

import pytest

from experiments.publishing import exporters
from experiments.report.summary import Criterion
from tests.experiments.toys import Killed, Toy, killed_after

ROWS = [
    {
        "algorithm": "fed_avg",
        "client_lr": lr,
        "seed": seed,
        "round": number,
        "objective": 1 / number,
        "support": number,  # it identifies a support, so writers do not receive it
    }
    for lr in (0.1, 0.2)
    for seed in (0, 1)
    for number in (10, 20)
]
SUMMARY = {"algorithms": {"fed_avg": {"best": {"client_lr": 0.1}}}}


BY_OBJECTIVE = Criterion("objective", "min", 10)


class Remembered:
    """A writer that records its evaluations, and which curves were closed."""

    def __init__(self):
        self.curves, self.closed = {}, []

    def __call__(self, workdir, label):
        curve = self.curves.setdefault(label, [])

        def log(number, measures):
            curve.append((number, measures))

        log.close = lambda: self.closed.append(label)
        return log


def test_each_seed_of_the_best_point_is_a_curve(tmp_path):
    writer = Remembered()
    exporters.Curves({"own": writer}, tmp_path).finish(ROWS, SUMMARY)
    curve = [(10, {"objective": 0.1}), (20, {"objective": 0.05})]
    assert writer.curves == {f"fed_avg_seed{seed}": curve for seed in (0, 1)}
    assert sorted(writer.closed) == sorted(writer.curves)


def test_the_table_has_rounds_and_measures(tmp_path):
    one = [row for row in ROWS if row["seed"] == 0]
    exporters.Curves(exporters.find(["csv"]), tmp_path).finish(one, SUMMARY)
    with open(tmp_path / "curves" / "fed_avg.csv", newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"round": "10", "objective": "0.1"},
            {"round": "20", "objective": "0.05"},
        ]


def test_over_a_grid_the_best_point_of_each_round_is_live(tmp_path):
    writer = Remembered()
    curves = exporters.Curves({"own": writer}, tmp_path, BY_OBJECTIVE)
    points = [{"client_lr": 0.1}, {"client_lr": 0.2}]

    def row(lr, seed, number, objective):
        return {"client_lr": lr, "seed": seed, "round": number, "objective": objective}

    first = [row(0.1, 0, 10, 1.0), row(0.1, 1, 10, 3.0), row(0.2, 0, 10, 0.5), row(0.2, 1, 10, 4.0)]
    second = [row(0.1, 0, 20, 1.0), row(0.2, 0, 20, None), row(0.2, 1, 20, 0.5)]
    curves.grow("fed_avg", "", points, first)
    curves.grow("fed_avg", "", points, first)  # like after a resume
    assert writer.curves == {"fed_avg_live": [(10, {"client_lr": 0.1, "objective": 2.0})]}
    curves.grow("fed_avg", "", points, second)
    assert writer.curves["fed_avg_live"][1:] == [(20, {"client_lr": 0.2, "objective": 0.5})]


def test_a_writer_that_fails_is_named_once_and_left_out(tmp_path):
    said, kept = [], Remembered()

    def failing(workdir, label):
        return lambda number, measures: 1 / 0

    writers = {"mine:failing": failing, "own": kept}
    exporters.Curves(writers, tmp_path, say=said.append).finish(ROWS, SUMMARY)
    (sentence,) = said
    assert "the writer mine:failing failed, and the run continues without it" in sentence
    assert [len(curve) for curve in kept.curves.values()] == [2, 2]


@pytest.mark.slow
def test_a_sweep_of_one_point_is_written_block_by_block_and_whole_after_a_kill(tmp_path):
    toy, known = Toy(client_lr=(0.003,)), []

    def run(writer, **given):
        curves = exporters.Curves({"own": writer}, tmp_path, toy.settings.criterion)
        return toy.run(tmp_path, grow=curves.grow, **given)

    first = Remembered()
    counts = killed_after(2)

    def around(block):
        known.append(len(first.curves["fed_dyn"]))
        return counts(block)

    with pytest.raises(Killed):
        run(first, around_block=around)
    assert known == [1, 2, 3]
    again = Remembered()
    _, rows, _ = run(again)
    assert [number for number, _ in again.curves["fed_dyn"]] == [0, 5, 10, 15, 20]
    sent = [measures["objective"] for _, measures in again.curves["fed_dyn"]]
    assert sent == [row["objective"] for row in rows]


@pytest.mark.slow
def test_parts_of_a_grid_have_live_curves_of_their_own(tmp_path):
    toy, writer = Toy(), Remembered()
    curves = exporters.Curves({"own": writer}, tmp_path, toy.settings.criterion)
    toy.run(tmp_path, size=2, grow=curves.grow)
    rounds = {name: [number for number, _ in curve] for name, curve in writer.curves.items()}
    every = [0, 5, 10, 15, 20]
    assert rounds == {"fed_dyn_live_0-1": every, "fed_dyn_live_2-2": every}


def test_a_users_function_is_found(tmp_path, monkeypatch):
    (tmp_path / "own_writer.py").write_text("def printed(workdir, label): return print\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert exporters.find(["own_writer:printed"])["own_writer:printed"].__name__ == "printed"
