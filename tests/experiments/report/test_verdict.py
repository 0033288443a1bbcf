import math

import pytest

from experiments.report.verdict import verdict


def curve(*values, rounds=range(0, 1000, 10), **columns):
    rows = [{"round": at, "objective": value} for at, value in zip(rounds, values, strict=False)]
    for name, column in columns.items():
        for row, value in zip(rows, column, strict=True):
            row[name] = value
    return rows


@pytest.mark.parametrize(
    ("values", "optimum", "status"),
    [
        ((5.0, 3.0, None, 1.0), None, "diverged by round 20: the objective is nan; take"),
        ((5.0, math.inf), None, "diverged by round 10: the objective is inf; take"),
        ((5.0, 4.0, 80.0, 3.0), None, "diverged by round 20: the objective is 80, it began at 5;"),
        ((5.0, 4.0, 3.0, 2.0, 1.0), None, "improving"),
        ((5.0, 1.0, 2.0, 3.0, 4.0), None, "rising"),
        ((5.0, 1.0, 1.1, 1.0, 1.1), None, "rising"),
        ((5.0, 1.0, 1.1, 1.0, 1.05, 1.0, 1.004), None, "moving"),
        ((5.0, 1.0, 1.0, 1.0, 1.0), None, "converged"),
        ((5.0, 1.0, 1.0, 1.0, 1.0), 1.0, "converged"),
        ((5.0, 1.0, 1.0, 1.0, 1.0), 0.5, "stalled"),
    ],
)
def test_a_run_has_the_verdict_of_its_curve(values, optimum, status):
    found = verdict(curve(*values), optimum)
    assert found.startswith(status) and (found == status) is (" " not in status)


def test_the_last_quarter_is_one_of_rounds_and_not_of_evaluations():
    """After 40 early evaluations the objective does not change in the last 40 of 200 rounds."""
    rounds = [*range(40), *range(40, 201, 10)]
    for last, status in ((170, "improving"), (150, "converged")):
        values = [2.0 if now < last else 1.0 for now in rounds]
        assert verdict(curve(*values, rounds=rounds)) == status


def test_a_round_in_which_every_upload_was_dropped_is_divergence():
    found = verdict(curve(5.0, 4.0, 4.0, dropped=[0, 3, 30], participants=[0, 30, 30]))
    assert found.startswith("diverged by round 20: no upload was finite")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((5.0, 1.0, 1.0, 1.0, 1.0), "converged by round 40; by round 20 iterates left the tube"),
        ((5.0, 1.0, 2.0, 3.0, 4.0), "rising at round 40: the objective is 4, it was 1 at round 10"),
    ],
)
def test_a_warning_names_its_first_round(values, told):
    assert " " not in verdict(curve(*values, beyond_reach=[0.0] * 5))
    assert verdict(curve(*values, beyond_reach=[0.0, 0.0, 0.1, None, 0.3])).startswith(told)


def test_a_sound_curve_is_judged_from_its_last_evaluation():
    """After sound rows the last evaluation alone gives the verdict on all, at every length."""
    values = (5.0, 3.0, 2.5, 2.5, 2.5, 2.5, 2.5, 90.0, 2.5)
    rows, sound = curve(*values, beyond_reach=[0.0] * 6 + [0.2] + [0.0] * 2), True
    for length in range(1, len(rows) + 1):
        whole = verdict(rows[:length], 2.0)
        if sound:
            assert verdict(rows[:length], 2.0, since=length - 1) == whole
        sound = " " not in whole
    assert whole.startswith("diverged") and "tube" in whole
