"""Best points: ties, failures, points stopped early, and rounds to a threshold."""

import math

import numpy as np
import pytest

from experiments.report import tables
from experiments.report.plots import score_table
from experiments.report.rows import plain
from experiments.report.summary import Criterion, at_best, first_round, summarise

FIELDS = ("client_lr", "server_lr")
MOST = Criterion("f1", "max", 10)


def row(client_lr, server_lr, at, f1, objective=1.0, status="", seed=0):
    return {
        "algorithm": "a",
        "client_lr": client_lr,
        "server_lr": server_lr,
        "seed": seed,
        "round": at,
        "f1": f1,
        "objective": objective,
        "status": status,
    }


def test_the_best_mean_at_the_end_wins_and_ties_go_to_the_lower_objective():
    rows = [row(lr, 1.0, at, f1) for lr, f1 in ((0.1, 0.5), (0.2, 0.7)) for at in (0, 10)]
    rows += [row(0.3, 1.0, 0, 0.0), row(0.3, 1.0, 10, 0.7, objective=0.5)]
    summary = summarise(rows, FIELDS, MOST)
    assert summary["best"] == {"client_lr": 0.3, "server_lr": 1.0}
    assert summary["score"] == 0.7 and summary["points"] == summary["finished"] == 3
    assert summarise(rows, FIELDS, MOST._replace(goal="min"))["best"]["client_lr"] == 0.1


def test_of_ties_the_sparsest_is_best_whatever_the_objective_of_its_strength():
    rows = [
        row(0.1, 1.0, 10, f1, objective) | {"penalty_scale": scale, "density": density}
        for scale, f1, objective, density in (
            (0.0, 0.9, 0.2, 1.0),
            (0.01, 0.895, 0.4, 0.3),
            (0.1, 0.8, 0.9, 0.0),
        )
    ]
    fields = (*FIELDS, "penalty_scale")
    assert summarise(rows, fields, MOST)["best"]["penalty_scale"] == 0.0
    near = MOST._replace(within=0.01)
    assert summarise(rows, fields, near)["best"]["penalty_scale"] == 0.01


def test_scores_are_means_over_the_last_rounds_and_the_seeds():
    ends = {0.1: ((0.5, 0.5), (0.5, 0.7)), 0.2: ((0.7, 0.7), (0.4, 0.6))}
    rows = [
        row(lr, 1.0, 10 * at, f1, seed=seed)
        for lr, seeds in ends.items()
        for seed, values in enumerate(seeds)
        for at, f1 in enumerate((0.9 - lr, *values))
    ]
    summary = summarise(rows, FIELDS, MOST._replace(last_rounds=20))
    assert summary["best"]["client_lr"] == 0.2
    assert summary["score"] == pytest.approx(0.6) and summary["last"]["f1"] == pytest.approx(0.65)


def test_points_that_failed_or_stopped_early_are_never_best():
    rows = [row(0.1, 1.0, at, 0.1) for at in (0, 10, 20)]
    rows += [row(0.2, 1.0, at, 0.9) for at in (0, 10)]
    rows += [row(0.3, 1.0, at, 0.9, status="diverged at round 10") for at in (0, 10, 20)]
    summary = summarise(rows, FIELDS, MOST)
    assert summary["best"]["client_lr"] == 0.1
    assert (summary["points"], summary["finished"]) == (3, 2)
    failed = {"client_lr": 0.3, "server_lr": 1.0, "seed": 0, "verdict": "diverged at round 10"}
    assert summary["diverged"] == [failed]
    table, firsts, seconds = score_table(rows, FIELDS, MOST)
    np.testing.assert_array_equal(table, [[0.1], [np.nan], [-np.inf]])
    assert (firsts, seconds) == ([0.1, 0.2, 0.3], [1.0])


def test_zero_is_not_an_edge_and_diverged_points_have_none():
    rows = [row(lr, rate, 10, lr + rate) for lr in (0.1, 0.2) for rate in (-1.0, 0.0)]
    assert summarise(rows, FIELDS, MOST)["edges"] == {"client_lr": "largest"}
    rows = [row(lr, 1.0, 10, lr, status="diverged at round 10") for lr in (0.1, 0.2)]
    assert summarise(rows, FIELDS, MOST)["edges"] == {}


def test_a_best_rate_below_rates_that_diverged_is_not_at_the_edge():
    rows = [row(lr, 1.0, at, lr) for lr in (0.1, 0.2) for at in (0, 10)]
    rows += [row(0.4, 1.0, 0, 0.1, status="diverged at round 0")]
    summary = summarise(rows, FIELDS, MOST)
    assert summary["best"]["client_lr"] == 0.2 and summary["edges"] == {}


def test_a_table_takes_the_best_over_other_hyperparameters():
    rows = [
        row(0.1, 1.0, 0, f1) | {"penalty_scale": scale} for scale, f1 in ((0.5, 0.4), (1.0, 0.6))
    ]
    fields = (*FIELDS, "penalty_scale")
    assert score_table(rows, fields, MOST)[0] == pytest.approx(0.6)
    assert score_table(rows, fields, MOST._replace(goal="min"))[0] == pytest.approx(0.4)


def test_a_threshold_is_reached_by_the_mean_over_seeds():
    rows = [row(0.1, 1.0, at, f1, seed=0) for at, f1 in ((0, 0.0), (5, 1.0), (10, 1.0))]
    rows += [row(0.1, 1.0, at, f1, seed=1) for at, f1 in ((0, 0.0), (5, 0.8), (10, 0.95))]
    assert first_round(rows, "f1", 0.95) == 10
    assert first_round(rows, "f1", 0.9) == 5
    assert first_round([row(0.1, 1.0, 5, None)], "f1", 0.9) == math.inf
    assert at_best(rows, "a", {"client_lr": 0.1}) == rows
    assert not at_best(rows, "a", {"client_lr": 0.2}) and not at_best(rows, "b", {})


@pytest.mark.parametrize(
    ("curves", "expected"),
    [
        (([20, 16, 17, 16, 16],), 30),  # 16 again at the evaluation in round 30
        (([16] * 5, [20, 18, 16, 16, 16]), 20),  # both seeds
        (([16] * 5, [16, 16, 16, 16, 15]), None),  # one seed changes to the end
        (([16, 16, 16, 16, None],), None),
        (([16],), None),  # one evaluation shows no change
    ],
)
def test_a_rank_is_final_from_the_first_look_after_which_no_seed_changes(curves, expected):
    rows = [
        row(0.1, 1.0, 10 * at, 0.5, seed=seed) | {"rank": rank}
        for seed, curve in enumerate(curves)
        for at, rank in enumerate(curve)
    ]
    summary = plain(summarise(rows, FIELDS, MOST))
    assert summary["final_from"] == {"rank": expected}
    [line] = tables.best_points({"algorithms": {"a": summary | {"seconds": 1.0}}})
    assert line["rank final from"] == expected


def test_a_support_of_a_run_that_diverged_is_never_final():
    rows = [row(0.1, 1.0, at, 0.5, status="diverged") | {"support": 7} for at in (0, 10, 20)]
    summary = summarise(rows, FIELDS, MOST)
    assert np.isnan(summary["final_from"]["support"]) and "support" not in summary["last"]
