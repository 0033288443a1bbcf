"""The benchmarks run, at their smallest sizes, and both sides compute the same."""

import json

import pytest

from benchmarks import transforms


@pytest.mark.parametrize("name", ["l1", "simplex", "monotone"])
def test_rows_of_the_table_run_and_agree(name, capsys):
    transforms.main(["--quick", "--only", name])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows
    for row in rows:
        assert row["seconds"] > 0
        assert row.get("difference", 0.0) < 1e-5
