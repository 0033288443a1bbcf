"""The benchmarks run, at their smallest sizes, and both sides compute the same."""

import json

import jax
import numpy as np
import pytest

from benchmarks import by_hand, peaks, rounds, transforms
from benchmarks.workloads import WORKLOADS, draw


@pytest.mark.parametrize("name", ["l1", "simplex", "monotone"])
def test_rows_of_the_table_run_and_agree(name, capsys):
    transforms.main(["--quick", "--only", name])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows
    for row in rows:
        assert row["seconds"] > 0
        assert row.get("difference", 0.0) < 1e-5


@pytest.mark.parametrize("algorithm", ["fed_dual_avg", "fed_avg"])
def test_both_sides_of_a_round_compute_the_same(algorithm, tmp_path):
    workload = WORKLOADS["toy"]
    x, y = draw(workload)
    ours = rounds.ours(workload, algorithm, x, y)(jax.random.key(0))
    rounds.store_draws(workload, 0, tmp_path / "draws.npz")
    stored = np.load(tmp_path / "draws.npz")
    theirs = by_hand.run(
        algorithm, workload, x, y, stored["members"], stored["indices"], workload.num_rounds
    )
    for name, leaf in theirs.items():
        np.testing.assert_allclose(ours[name], leaf, rtol=1e-4, atol=1e-6)


def test_floors_are_the_larger_of_two_times():
    known = peaks.Peaks(gflops=100.0, gbytes=50.0)
    operations, read = peaks.needs(WORKLOADS["W1"])
    assert (operations, read) == (4 * 10 * 10 * 10 * 1024, 4 * 10 * 100 * 1024)
    assert peaks.floor_ms(WORKLOADS["W1"], known) == pytest.approx(1e3 * read / 5e10)
    # Forward and gradient products of a softmax regression are bound by arithmetic.
    operations, _ = peaks.needs(WORKLOADS["W3"])
    assert peaks.floor_ms(WORKLOADS["W3"], known) == pytest.approx(1e3 * operations / 1e11)
    used = peaks.shares(WORKLOADS["W3"], 1e3 * operations / 1e11, known)
    assert used["share_of_peak_operations"] == 1.0 and used["share_of_peak_reading"] < 1
