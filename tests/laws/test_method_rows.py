"""Methods compute what the record says: its bits and programs on its machine, else its models."""

import json
import os
import pathlib
import subprocess
import sys
import typing

import pytest

from fcojax import algorithms
from tests.laws import method_rows

ROOT = pathlib.Path(__file__).parent.parent.parent
# A control with its prox, a bank, a transport, a mean of all. Sums are those of ``test_oracles``;
# duals and a drift are those of the procedures in ``test_primal_dual_oracles``.
FEW = (
    "scaffold feedback steps, lost",
    "prox_skip geometric, linear",
    "r_fed_svrg projection, full",
    "fed_dr, lost",
)
GROUPS = 10
RECORD = json.loads(method_rows.RECORD.read_text())["rows"]
SLOW = [
    pytest.param(list(RECORD)[number::GROUPS], id=f"group {number}", marks=pytest.mark.slow)
    for number in range(GROUPS)
]


@pytest.mark.parametrize("keys", [pytest.param(FEW, id="few, models"), *SLOW])
def test_methods_are_those_of_the_record(keys):
    # In another process: the other tests are in float64. Bits are of programs that are optimised.
    done = subprocess.run(
        [sys.executable, "-m", "tests.laws.method_rows", *keys],
        cwd=ROOT,
        env=os.environ if keys is FEW else os.environ | {"XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def is_factory(one):
    found = getattr(one, "__annotations__", {}).get("return")
    return (typing.get_origin(found) or found) is algorithms.Algorithm


def test_every_algorithm_has_a_row_and_a_record():
    factories = {name for name in algorithms.__all__ if is_factory(getattr(algorithms, name))}
    assert len(factories) >= 35
    assert factories == {name.partition(" ")[0] for name in method_rows.rows()}
    assert {key.rpartition(", ")[0] for key in RECORD} == set(method_rows.rows())


@pytest.mark.parametrize(
    ("column", "value"),
    [("up", 1), ("state", [4, 4]), ("digest", "0"), ("fusions", 1), ("model", ["0x1p+0"] * 3)],
)
def test_a_difference_is_seen(column, value):
    kept = RECORD["fed_avg, full"]
    assert not list(method_rows.differences(kept, kept, one_machine=True))
    found = method_rows.differences(kept | {column: value}, kept, one_machine=True)
    assert [name for name, _, _ in found] == [column]
