"""The bar figure: sides whose losses differ are refused, and the README says what was measured."""

import json
import pathlib

import pytest

from benchmarks import bar_figure

ROOT = pathlib.Path(__file__).parent.parent.parent
MEASURED = ROOT / "docs" / "figures" / "round_times.json"


def row(ms, loss):
    return {"ms": ms, "loss": loss, "first_round_s": 1.0, "versions": "1"}


def test_medians_are_compared_with_ours():
    sides = {"fcojax": [row(2.0, 1.0)] * 3, "Flower": [row(ms, 1.001) for ms in (9.0, 8.0, 30.0)]}
    found = bar_figure._medians(sides)
    assert found["Flower"]["ms"] == 9.0 and found["Flower"]["times_ours"] == 4.5


def test_a_side_with_another_loss_is_refused():
    with pytest.raises(RuntimeError, match="Flower"):
        bar_figure._medians({"fcojax": [row(2.0, 1.0)], "Flower": [row(9.0, 1.1)]})


@pytest.mark.slow
@pytest.mark.parametrize("linear", [False, True])
def test_our_side_learns(linear):
    first, last = (bar_figure.ours(rounds, linear, quick=True)["loss"] for rounds in (1, 5))
    assert last < first


@pytest.mark.skipif(not MEASURED.exists(), reason="benchmarks.bar_figure has not run in full")
def test_the_readme_has_the_numbers_that_were_measured(tmp_path):
    found = json.loads(MEASURED.read_text("utf-8"))
    assert not found["quick"]
    assert bar_figure.sentence(found) in (ROOT / "README.md").read_text("utf-8").splitlines()
    bar_figure.draw(found, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0
