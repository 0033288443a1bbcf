"""Where a run comes from: the command as it was typed."""

import json
import sys

import pytest

from experiments.cli import invocation
from experiments.report import rows as tidy
from experiments.storage import provenance
from tests.experiments.test_run import ROOT


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["python", "/bin/fcojax", "run", "lasso", "--quick"], "fcojax run lasso --quick"),
        (["python", "-m", "fcojax", "run", "a.py", "--quick"], "fcojax run a.py --quick"),
        (["python", "-m", "experiments.run", "--quick"], "python -m experiments.run --quick"),
    ],
)
def test_the_command_is_told_as_it_was_typed(given, told, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", given)
    monkeypatch.setattr(sys, "argv", ["experiments/run.py", "--quick"])
    assert " ".join(invocation.command("run")) == told


@pytest.mark.slow
def test_a_run_is_gone_on_with_though_a_number_of_its_config_is_infinite(tmp_path):
    ours = provenance.provenance({"above": float("inf")}, ROOT / "configs" / "lasso.py", {}, [])
    tidy.write_json(tmp_path / "config.json", ours)
    theirs = json.loads((tmp_path / "config.json").read_text("utf-8"))
    assert provenance.difference(theirs, ours) is None
