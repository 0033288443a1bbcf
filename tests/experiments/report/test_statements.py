"""Statements: which number of several is shown, and where a source makes them."""

import pytest

from experiments.report.claims import Claim
from experiments.report.tables import lines, statements

PAPER = "A and B (2020), Figure {}"


def ahead(lead, **named):
    given = {"source": PAPER.format(1), "measure": "difference"} | named
    return Claim("a is ahead", lead, 0.0, **given).as_json()


def of(*entries, **others):
    [found] = statements({"first": list(entries)} | others)
    return found


@pytest.mark.parametrize(
    ("entries", "shown", "holds"),
    [
        ([ahead(2.0)], "yes: 2", True),
        ([ahead(2.0, part="b"), ahead(1.0, part="c")], "yes, 2 of 2: c 1", True),
        ([ahead(2.0, part="b"), ahead(-1.0, part="c")], "no, 1 of 2: c -1", False),
        ([ahead(-1.0, part="b"), ahead(-3.0, part="c")], "no, 0 of 2: c -3", False),
        ([ahead(2.0, seeds=2)], "not decided: 2", None),
        ([ahead(2.0), ahead(3.0, part="c", seeds=1)], "not decided, 1 of 2: c 3", None),
        ([ahead(float("nan"))], "no: -", False),
        ([ahead(2.0, interval=(1.5, 2.5))], "yes: 2 (1.5 to 2.5)", True),
        ([ahead(0.1, examples=0.2)], "no: 0.1, p = 0.2 over examples", False),
    ],
)
def test_a_cell_shows_the_number_nearest_to_refuting_the_statement(entries, shown, holds):
    assert of(*entries).cells["first"] == (holds, shown)


def test_a_table_has_a_line_for_each_statement_and_the_place_if_places_differ():
    one, two = ahead(1.0, case="x"), ahead(1.0, case="y") | {"claim": "b is sparse"}
    [first, second] = lines(statements({"x": [one], "y": [two]}))
    assert list(first) == ["statement", "x", "y", "decided by"]
    assert (first["x"], first["y"], second["y"]) == ("yes: 1", None, "yes: 1")
    assert first["decided by"] == "difference, at least 0"
    two["source"] = PAPER.format(2)
    assert [line["where"] for line in lines(statements({"x": [one], "y": [two]}))] == [
        "Figure 1",
        "Figure 2",
    ]


def test_thresholds_that_differ_stand_with_their_numbers():
    one = ahead(1.0, case="x")
    assert of(one, second=[one | {"needed": 0.5}]).cells["second"][1] == "yes: 1, at least 0.5"
    assert of(one, second=[one | {"measure": "ratio"}]).decided_by == (
        "difference or ratio, at least 0"
    )
