"""What the terminal says: numbers short, but never so short that they contradict the verdict."""

import io

import pytest
from rich.console import Console

from experiments.cli.console import claims_tables, results
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


def best_of(count):
    names = ["fed_dual_avg", "fast_fed_dual_avg", "fed_avg_subgradient", "scaffold", "fed_mid"]
    best = {"client_lr": 0.000123456, "server_lr": 0.03333333, "strong_convexity": 0.1}
    criterion = {"measure": "f1", "goal": "max", "last_rounds": 100}
    entry = {
        "best": best,
        "criterion": criterion,
        "score": 0.99619451,
        "last": {"suboptimality": 1e-9},
        "diverged": [],
        "points": 2,
        "seeds": 2,
        "seconds": 1.4,
        "verdict": "converged: it is",
    }
    others = {name: entry | {"best": best | {"client_lr": 0.01}} for name in names[1:count]}
    return {"algorithms": {names[0]: entry} | others}


@pytest.mark.parametrize("width", [200, 80, 60, 30])
@pytest.mark.parametrize("terminal", [True, False])
def test_neither_names_nor_numbers_of_the_best_points_are_cut(width, terminal, tmp_path):
    file = io.StringIO()
    console = Console(width=width, file=file, force_terminal=terminal, color_system=None)
    results(console, best_of(5), tmp_path)
    said = file.getvalue().partition("rows and summary")[0]
    names = ["FedDualAvg", "Fast-FedDualAvg", "FedAvg, subgradient", "SCAFFOLD", "FedMiD"]
    whole = ["0.0001235", "0.9962", "1e-09", *names, "converged", "client_lr"]
    assert all(word in said for word in whole) and "…" not in said
    assert "diverged: " not in said
    if terminal:
        assert max(len(line.rstrip()) for line in said.splitlines()) <= width


def test_a_quick_run_decides_nothing_that_depends_on_seeds_or_rounds():
    claim = Claim("best", 0.1, 0.5, quick=False)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(*claims_tables([claim.as_json(quick=True)]))
    assert captured.get().splitlines()[-1].endswith("needs the full run")
    assert claim.as_json()["holds"] is False
