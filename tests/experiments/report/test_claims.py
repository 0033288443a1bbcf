"""Claims: both sides of the threshold, and numbers that are not finite."""

import json

import pytest

from experiments.report.claims import Claim, over_seeds


@pytest.mark.parametrize(
    ("measured", "at_least", "holds"),
    [
        (2.0, True, True),
        (1.0, True, True),
        (0.5, True, False),
        (0.5, False, True),
        (2.0, False, False),
        (float("nan"), True, False),
        (float("nan"), False, False),
        (float("inf"), True, False),
        (float("-inf"), False, False),
    ],
)
def test_a_claim_holds_on_its_side_for_finite_numbers(measured, at_least, holds):
    claim = Claim("one", measured, 1.0, at_least)
    assert claim.holds is holds
    entry = json.loads(json.dumps(claim.as_json(), allow_nan=False))
    assert entry["holds"] is holds and (entry["relation"] == "at least") is at_least
    if entry["margin"] is not None:
        assert (entry["margin"] >= 0) is holds


def test_equal_results_do_not_beat_each_other():
    tie = over_seeds("it is faster", [0.0, 0.0, 0.0], 0.0)
    assert not tie.holds and tie.as_json()["relation"] == "above"
    assert over_seeds("it is faster", [0.1, 0.1, 0.1], 0.0).holds
    assert over_seeds("it is close behind", [0.0, 0.0], 0.05, at_least=False).holds


def test_one_or_two_seeds_decide_nothing():
    clear = [1.0, 1.0, 1.0]
    for count, holds, reason in (
        (1, None, "not decided"),
        (2, None, "not decided"),
        (3, True, None),
    ):
        entry = over_seeds("it is larger", clear[:count], 0.0).as_json()
        assert (entry["holds"], entry["open"]) == (holds, reason)
        of_means = Claim("a mean is larger", 1.0, 0.0, seeds=count)
        assert of_means.as_json()["holds"] is holds
    assert (
        over_seeds("it is larger", clear, 0.0).as_json(quick=True)["open"] == "needs the full run"
    )


def test_a_single_rate_decides_nothing_about_the_best_one():
    claim = Claim("larger rates are better", 1.0, 2.0, rates=1)
    assert claim.as_json()["holds"] is None and claim.as_json()["open"] == "not decided"
    assert claim._replace(rates=2).as_json()["holds"] is False
