"""Runs that signals end."""

import signal

import pytest

from tests.experiments import survival

# Data that are made, so that each runs anywhere; sweeps go on from a checkpoint, and studies, the
# last two, start over.
CONFIGS = (
    "lasso",
    "recovery_lasso",
    "low_rank",
    "matrix_completion",
    "kpca",
    "compress",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_a_run_that_is_killed_from_outside_is_the_same_bit_for_bit(name):
    """With client state, sampled cohorts, lost uploads and error feedback."""
    seen = survival.measure("tests/experiments/survivor.py", [name] * 2, seed=1, latest=6.0)
    assert seen["differences"] == [] and seen["rows"] == 96
    assert seen["rows_after"] <= 48, seen  # it ends within a block, not with the run


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
def test_a_config_that_three_signals_end_is_the_same_bit_for_bit(config):
    names = ["TERM", "INT", "KILL"]
    seen = survival.measure(f"configs/{config}.py", names, seed=CONFIGS.index(config))
    assert seen["differences"] == [] and seen["rows"] > 0, seen
    codes = [code for code in seen["exit_codes"][:-1] if code not in (0, 1)]
    allowed = [{-number, 128 + number} for number in (signal.SIGTERM, signal.SIGINT)]
    assert len(codes) == 3 and codes[2] == -signal.SIGKILL, seen
    assert all(code in some for code, some in zip(codes[:2], allowed, strict=True)), seen
    assert all(": stopped by " in line for line in seen["said"]), seen
