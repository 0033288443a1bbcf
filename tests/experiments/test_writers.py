"""Curves to a table and to a function of one's own; what is missing is refused."""

import csv
import sys

import pytest

from experiments import writers

ROWS = [
    {
        "algorithm": "fed_avg",
        "client_lr": lr,
        "seed": seed,
        "round": number,
        "objective": 1.0 / number,
    }
    for lr in (0.1, 0.2)
    for seed in (0, 1)
    for number in (10, 20)
]
SUMMARY = {"algorithms": {"fed_avg": {"best": {"client_lr": 0.1}}}}


def test_each_seed_of_the_best_point_is_a_curve(tmp_path):
    given = []
    writers.write([lambda *call: given.append(call)], tmp_path, ROWS, SUMMARY)
    curve = [(10, {"objective": 0.1}), (20, {"objective": 0.05})]
    assert given == [(tmp_path, f"fed_avg_seed{seed}", curve) for seed in (0, 1)]


def test_a_table_has_what_was_measured(tmp_path):
    one = [row for row in ROWS if row["seed"] == 0]
    writers.write(writers.find(["csv"]), tmp_path, one, SUMMARY)
    with open(tmp_path / "curves" / "fed_avg.csv", newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"round": "10", "objective": "0.1"},
            {"round": "20", "objective": "0.05"},
        ]


def test_a_function_of_ones_own_is_found(tmp_path, monkeypatch):
    (tmp_path / "own_writer.py").write_text("def told(workdir, label, curve): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert writers.find(["own_writer:told"])[0].__name__ == "told"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cvs", "did you mean csv"),
        ("trackio", "needs trackio"),
        ("nowhere:told", "cannot be imported"),
    ],
)
def test_what_is_not_there_is_refused(name, said, monkeypatch):
    monkeypatch.setattr(writers.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(ValueError, match=said):
        writers.find([name])
