"""What the terminal says: numbers short, but never so short that they contradict the verdict."""

import os
import sys

import pytest
from rich.console import Console

from experiments.report.claims import Claim
from experiments.terminal import claims_tables, results, told


@pytest.mark.parametrize(
    ("measured", "needed", "said"),
    [
        (0.99617146, 0.99619451, "0.99617 at least 0.99619 NO"),
        (1.0, 0.99619451, "1 at least 0.9962 yes"),
        (0.5, 0.5, "0.5 at least 0.5 yes"),
        (float("nan"), 0.5, "- at least 0.5 NO"),
    ],
)
def test_claims_show_the_digits_that_decide(measured, needed, said):
    console = Console(width=100)
    with console.capture() as captured:
        console.print(*claims_tables([Claim("best", measured, needed).as_json()]))
    assert captured.get().splitlines()[-1].split() == ["best", *said.split()]


def test_a_text_whose_reader_has_gone_ends_quietly(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as nobody:
        monkeypatch.setattr(sys, "stdout", nobody)
        told("many lines")
        told("and more")


def test_the_last_line_promises_what_there_is(tmp_path):
    console = Console(width=300)
    (tmp_path / "figures").mkdir()
    (tmp_path / "models").mkdir()
    said = []
    for file in ("rows.jsonl", "figures/curves.png", "models/fed_avg.npz"):
        (tmp_path / file).touch()
        with console.capture() as captured:
            results(console, {}, tmp_path)
        said.append(captured.get().partition(" are in ")[0])
    assert said == [
        "rows and summary", "rows, summary and figures", "rows, summary, figures and models"
    ]  # fmt: skip


def test_a_quick_run_decides_nothing_that_depends_on_seeds_or_rounds():
    claim = Claim("best", 0.1, 0.5, quick=False)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(*claims_tables([claim.as_json(quick=True)]))
    assert captured.get().splitlines()[-1].endswith("needs the full run")
    assert claim.as_json()["holds"] is False
