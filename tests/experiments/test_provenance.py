"""The provenance of a run: the command as it was typed."""

import sys

import pytest

from experiments.process import invocation
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
def test_the_command_is_told_as_it_was_typed(given, told, monkeypatch, capsys):
    monkeypatch.setattr(sys, "orig_argv", given)
    monkeypatch.setattr(sys, "argv", ["experiments/run.py", "--quick"])
    assert " ".join(invocation.command("run")) == told
    invocation.speak("run", "stopped.")
    name = "fcojax run" if told.startswith("fcojax") else "experiments.run"
    assert capsys.readouterr().err == f"{name}: stopped.\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "name", "value", "text"),
    [
        ("config", "client_lr", 0.2, "with client_lr = 0.1 and this one has 0.2"),
        ("options", "jax_enable_x64", "maybe", "jax_enable_x64"),
        ("versions", "numpy", "0.1", "and this one with 0.1"),
        ("versions", "python", "2.7", "and this one with 2.7"),
        ("code", "config file", "", "by another version of the config file"),
        ("xla_flags", None, "--other", None),
    ],
)
def test_processes_of_one_run_have_its_config_code_and_versions(place, name, value, text):
    first = provenance.provenance({"client_lr": 0.1}, ROOT / "configs" / "lasso.py", [])
    assert provenance.unlike(first, first) is None
    changed = value if name is None else first[place] | {name: value}
    found = provenance.unlike(first, first | {place: changed})
    assert found is None if text is None else text in found
