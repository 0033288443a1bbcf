"""Claims: comparisons and thresholds of rows, numbers that are not finite, held-out examples."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments.report.claims import OURS, Claim, judged, mcnemar, over_seeds

METHODS = {"a": np.array([4.0, 5.0, 6.0]), "b": np.array([2.0, 3.0, 3.0]), "c": np.ones(3)}


@pytest.mark.parametrize(
    ("column", "measured"),
    [
        ("x its b", {"": [2, 3, 3]}),
        ("x behind b", {"": [2, 2, 3]}),
        ("x beyond b", {"": [-2, -2, -3]}),
        ("x over b", {"": [0.5, 0.6, 0.5]}),
        ("x first a", {"": [2, 2, 3]}),
        ("x first b", {"": [-2, -2, -3]}),
        ("x behind b c", {"b": [2, 2, 3], "c": [3, 4, 5]}),
        ("x behind b d", {"b": [2, 2, 3]}),  # the numbers have no d
        ("x", {"a": [4, 5, 6], "b": [2, 3, 3], "c": [1, 1, 1]}),
        ("y", {"": [7]}),
        ("z", {}),
    ],
)
def test_methods_are_compared_with_the_first(column, measured):
    numbers = {"x": METHODS, "y": 7.0}
    rest = "x | | | > 0\ny | | | >= 0\n"
    for threshold, of in (("> 0", np.mean), (">= 0", np.min), ("<= 0", np.max)):
        if column == "y" and threshold == "> 0":
            continue  # one number has no interval
        claims = judged(f"{rest}A (2020)\n{column} | it is so | number | {threshold}", numbers)
        found = {claim.part: claim.measured for claim in claims if claim.source}
        assert found == pytest.approx({part: of(own) for part, own in measured.items()})


@pytest.mark.parametrize(
    ("threshold", "values", "holds"),
    [
        (">= 1", 1.0, True),
        (">= 1", 0.99, False),
        ("<= 1", 1.0, True),
        ("<= 1", 1.01, False),
        (">= 1", [1.5, 0.5], False),
        ("<= 1", [1.5, 0.5], False),
        ("<= -1e-2", -0.02, True),
        ("> 1", [1.2, 1.3, 1.4], True),
        ("> 1", [0.9, 1.2, 1.3], False),  # the mean is above, the interval is not
        ("> 1", [1.0, 1.0, 1.0], False),  # equal results do not beat each other
        ("< 1", [0.6, 0.7, 0.8], True),
        ("< 1", [0.7, 0.8, 1.1], False),
        (">= 1", math.nan, False),
        ("<= 1", [math.nan, 0.0], False),
        (">= 1", math.inf, False),
        ("<= 1", -math.inf, False),
    ],
)
def test_a_claim_holds_on_its_side_of_the_threshold(threshold, values, holds):
    [claim] = judged(f"x | it is so | number | {threshold}", {"x": values})
    entry = json.loads(json.dumps(claim.as_json(), allow_nan=False))
    words = {">=": "at least", "<=": "at most", ">": "above", "<": "below"}
    sign, needed = threshold.split()
    assert (entry["holds"], entry["needed"]) == (holds, float(needed))
    assert entry["relation"] == words[sign]
    assert entry["margin"] is None or (entry["margin"] >= 0) is holds or entry["margin"] == 0


def test_a_row_has_its_source_its_case_and_its_settings():
    table = f"""
A (2020), Figure 1
x | it is large
    and grows | number | >= 1
y | it is small | number | <= 1 | full run
{OURS}
z | it is ahead | difference | > 0
"""
    numbers = {"x": 2.0, "y": (2.0, {"rates": 1}), "z": [1.0, 1.0, 1.0]}
    found = judged(table, numbers, "by digit", quick=True)
    assert [claim.text for claim in found] == [
        "it is large and grows",
        "it is small",
        "it is ahead",
    ]
    assert [claim.source for claim in found] == 2 * ["A (2020), Figure 1"] + [""]
    assert {claim.case for claim in found} == {"by digit"}
    assert [claim.measure for claim in found] == ["number", "number", "difference"]
    assert [claim.as_json(quick=True)["open"] for claim in found] == [None] + 2 * [
        "needs the full run"
    ]
    # A single rate is no best one.
    assert [claim.as_json()["open"] for claim in found] == [None, "not decided", None]
    assert not any(claim.quick for claim in judged(table, numbers))
    # Rates beyond the edge of a grid may be better.
    edge = [judged(table, {"x": (x, {"at_edge": True})})[0].as_json() for x in (2.0, 0.5)]
    assert [(one["holds"], one["open"]) for one in edge] == [(None, "not decided"), (False, None)]
    with pytest.raises(ValueError, match="no statement is about w"):
        judged(table, numbers | {"w": 1.0})


def test_the_interval_is_student_s():
    values = METHODS["a"]
    expected = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert over_seeds("it is larger", values, 0.0).interval == pytest.approx(expected)


def test_one_or_two_seeds_decide_nothing():
    for count, holds, reason in (
        (1, None, "not decided"),
        (2, None, "not decided"),
        (3, True, None),
    ):
        entry = over_seeds("it is larger", [1.0] * count, 0.0).as_json()
        assert (entry["holds"], entry["open"]) == (holds, reason)
        assert Claim("a mean is larger", 1.0, 0.0, seeds=count).as_json()["holds"] is holds


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_mcnemar_is_the_exact_binomial_test_of_the_examples_that_differ(pairs):
    first, second = np.array(pairs).T
    wins, losses = int((first & ~second).sum()), int((second & ~first).sum())
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert mcnemar(first, second) == pytest.approx(expected) == mcnemar(second, first)
    # More seeds on the same examples are no more examples.
    assert mcnemar(np.tile(first, (10, 1)), np.tile(second, (10, 1))) == pytest.approx(expected)


def test_a_difference_of_one_scan_in_every_seed_is_not_found():
    """All seeds agree, so their interval has no width; one example of 54 decides nothing."""
    first, second = np.ones((3, 54)), np.ones((3, 54))
    for wrong, holds in ((1, False), (5, False), (6, True)):
        second[:, :wrong] = 0
        lead, chance = (first - second).mean(axis=1), mcnemar(first, second)
        assert over_seeds("more accurate", lead, 0.0).holds
        claim = over_seeds("more accurate", lead, 0.0, examples=chance)
        assert claim.holds is holds and claim.as_json()["examples"] == chance
