"""Metric writers: a table, a user's function, and errors."""

import csv
import sys

import pytest

from experiments.publishing import exporters

ROWS = [
    {
        "algorithm": "fed_avg",
        "client_lr": lr,
        "seed": seed,
        "round": number,
        "objective": 1 / number,
    }
    for lr in (0.1, 0.2)
    for seed in (0, 1)
    for number in (10, 20)
]
SUMMARY = {"algorithms": {"fed_avg": {"best": {"client_lr": 0.1}}}}


def test_each_seed_of_the_best_point_is_a_curve(tmp_path):
    given = []
    exporters.write([lambda *call: given.append(call)], tmp_path, ROWS, SUMMARY)
    curve = [(10, {"objective": 0.1}), (20, {"objective": 0.05})]
    assert given == [(tmp_path, f"fed_avg_seed{seed}", curve) for seed in (0, 1)]


def test_the_table_has_rounds_and_measures(tmp_path):
    one = [row for row in ROWS if row["seed"] == 0]
    exporters.write(exporters.find(["csv"]), tmp_path, one, SUMMARY)
    with open(tmp_path / "curves" / "fed_avg.csv", newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"round": "10", "objective": "0.1"},
            {"round": "20", "objective": "0.05"},
        ]


def test_a_users_function_is_found(tmp_path, monkeypatch):
    (tmp_path / "own_writer.py").write_text("def printed(workdir, label, curve): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert exporters.find(["own_writer:printed"])[0].__name__ == "printed"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cvs", "did you mean csv"),
        ("trackio", "needs trackio"),
        ("nowhere:printed", "cannot be imported"),
    ],
)
def test_unknown_writers_and_missing_packages_are_errors(name, message, monkeypatch):
    monkeypatch.setattr(exporters.importlib.util, "find_spec", lambda package: None)
    with pytest.raises(ValueError, match=message):
        exporters.find([name])
