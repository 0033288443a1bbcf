"""Claims: both sides of the threshold, numbers that are not finite, and held-out examples."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments.report.claims import Claim, mcnemar, over_seeds


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


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_mcnemar_is_the_exact_binomial_test_of_the_examples_that_differ(pairs):
    first, second = np.array(pairs).T
    wins, losses = int((first & ~second).sum()), int((second & ~first).sum())
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert mcnemar(first, second) == pytest.approx(expected)
    assert mcnemar(second, first) == pytest.approx(expected)


def test_more_seeds_on_the_same_examples_are_no_more_examples():
    first, second = np.array([1] * 5 + [0] * 50), np.zeros(55)
    alone = mcnemar(first, second)
    assert alone == pytest.approx(2 * 0.5**5)
    assert mcnemar(np.tile(first, (10, 1)), np.tile(second, (10, 1))) == alone


def test_a_difference_of_one_scan_in_every_seed_is_not_found():
    """All seeds agree, so their interval has no width; one example of 54 decides nothing."""
    first, second = np.ones((3, 54)), np.ones((3, 54))
    second[:, 0] = 0
    lead = (first - second).mean(axis=1)
    assert over_seeds("more accurate", lead, 0.0).holds
    claim = over_seeds("more accurate", lead, 0.0, examples=mcnemar(first, second))
    assert not claim.holds and claim.as_json()["examples"] == 1.0
    second[:, :6] = 0
    assert over_seeds("more accurate", lead, 0.0, examples=mcnemar(first, second)).holds
