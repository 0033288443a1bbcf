import math

import pytest

from experiments.report.verdict import verdict
from fcojax.engine.optimality import Status


def curve(*values):
    return [10 * i for i in range(len(values))], list(values)


@pytest.mark.parametrize(
    ("values", "optimum", "status", "bad_round"),
    [
        ((5.0, 3.0, math.nan, 1.0), None, "DIVERGED", 20),
        ((5.0, math.inf), None, "DIVERGED", 10),
        ((5.0, 4.0, 80.0, 3.0), None, "DIVERGED", 20),
        ((5.0, 4.0, 3.0, 2.0, 1.0), None, "IMPROVING", 40),
        ((5.0, 1.0, 2.0, 3.0, 4.0), None, "RISING", 40),
        ((5.0, 1.0, 1.1, 1.0, 1.1), None, "RISING", 40),
        ((5.0, 1.0, 1.1, 1.0, 1.05, 1.0, 1.004), None, "MOVING", 60),
        ((5.0, 1.0, 1.0, 1.0, 1.0), None, "CONVERGED", 40),
        ((5.0, 1.0, 1.0, 1.0, 1.0), 1.0, "CONVERGED", 40),
        ((5.0, 1.0, 1.0, 1.0, 1.0), 0.5, "STALLED", 40),
    ],
)
def test_a_run_has_the_verdict_of_its_curve(values, optimum, status, bad_round):
    found = verdict(*curve(*values), optimum)
    assert (found.status, found.round) == (Status[status], bad_round)
    assert str(bad_round) in found.sentence


def test_the_last_quarter_is_one_of_rounds_and_not_of_evaluations():
    """After 40 early evaluations the objective does not change in the last 40 of 200 rounds."""
    rounds = [*range(40), *range(40, 201, 10)]
    moving = [2.0 if now < 170 else 1.0 for now in rounds]
    assert verdict(rounds, moving).status is Status.IMPROVING
    still = [2.0 if now < 150 else 1.0 for now in rounds]
    assert verdict(rounds, still).status is Status.CONVERGED


def test_a_round_in_which_every_upload_was_dropped_is_divergence():
    rounds, values = curve(5.0, 4.0, 4.0)
    found = verdict(rounds, values, dropped=[0, 3, 30], participants=[0, 30, 30])
    assert (found.status, found.round) == (Status.DIVERGED, 20)
    assert "no upload was finite" in found.sentence


def test_a_warning_names_its_first_round():
    rounds, values = curve(5.0, 1.0, 1.0, 1.0, 1.0)
    plain = verdict(rounds, values)
    well = verdict(rounds, values, flags={"beyond_reach": [0.0] * 5})
    assert well == plain and not plain.warned
    found = verdict(rounds, values, flags={"beyond_reach": [0.0, 0.0, 0.1, math.nan, 0.3]})
    assert (found.status, found.round, found.warned) == (plain.status, plain.round, True)
    assert found.sentence.startswith(f"{plain.sentence}; by round 20 iterates left the tube")


def test_a_sound_curve_is_judged_from_its_last_evaluation():
    """After sound rows the last evaluation alone gives the verdict on all, at every length."""
    rounds, values = curve(5.0, 3.0, 2.5, 2.5, 2.5, 2.5, 2.5, 90.0, 2.5)
    flags = {"beyond_reach": [0.0] * 6 + [0.2] + [0.0] * 2}
    sound = True
    for length in range(1, len(rounds) + 1):
        seen = {name: column[:length] for name, column in flags.items()}
        whole = verdict(rounds[:length], values[:length], 2.0, flags=seen)
        if sound:
            found = verdict(rounds[:length], values[:length], 2.0, flags=seen, since=length - 1)
            assert found == whole
        sound = whole.status is not Status.DIVERGED and not whole.warned
    assert whole.status is Status.DIVERGED and "tube" in whole.sentence
