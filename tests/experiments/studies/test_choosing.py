import pytest

from experiments.studies.compare import choosing
from experiments.studies.compare.methods import METHODS

pytestmark = pytest.mark.slow


def test_a_row_has_the_checks_and_the_measured_rounds(monkeypatch):
    monkeypatch.setattr(choosing, "_ROUNDS", 600)
    found = {"rounds": 12.0, "floats_up": 3400.0, "floats_down": 500.0}
    tables = {
        problem: {"methods": {method.text: found for method in METHODS.values()}}
        for problem in ("own", "shared")
    }
    lines = {line.name: line for line in choosing._LINES}
    cells = choosing.row(lines["prox_skip"], tables)
    assert list(cells.values()) == [
        "`prox_skip`",
        "F + psi",
        "exact",
        "exact",
        "exact",
        "1 d",
        "0",
        "1",
        "12; 3.4, 0.5",
        "12; 3.4, 0.5",
    ]
    cells = choosing.row(lines["fed_split"], tables)
    assert cells["limit"] == "approaching" and cells["half the clients"] == "refused"
    assert cells["minimises"] == "F" and cells["shared Hessians"] == ""
