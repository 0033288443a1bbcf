"""Runs that are killed from outside, and command lines of all kinds: short forms of benchmarks."""

import json
import subprocess
import sys

import pytest

from benchmarks import survival
from tests.experiments.test_run import ROOT, environment


@pytest.mark.slow
@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_a_run_that_is_killed_from_outside_is_the_same_bit_for_bit(name):
    seen = survival.measure(kills=2, name=name, seed=1, quick=True)
    assert seen["kills"] == 2 and seen["differences"] == [] and seen["rows"] == 96
    assert seen["slowest_s"] < 5, seen


@pytest.mark.slow
def test_command_lines_of_all_kinds_end_well_or_in_one_sentence():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.command_lines", "--count=20", "--seed=7"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failures"] == [] and sum(found["ends"].values()) == 20
    assert found["ends"]["told"] > 3
