"""What the terminal says: numbers short, but never so short that they contradict the verdict."""

import pytest
from rich.console import Console

from experiments.cli.console import claims_tables
from experiments.report.claims import Claim


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


def test_a_quick_run_decides_nothing_that_depends_on_seeds_or_rounds():
    claim = Claim("best", 0.1, 0.5, quick=False)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(*claims_tables([claim.as_json(quick=True)]))
    assert captured.get().splitlines()[-1].endswith("needs the full run")
    assert claim.as_json()["holds"] is False
