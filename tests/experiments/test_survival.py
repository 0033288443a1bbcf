"""Runs that are killed from outside."""

import pytest

from tests.experiments import survival


@pytest.mark.slow
@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_a_run_that_is_killed_from_outside_is_the_same_bit_for_bit(name):
    seen = survival.measure(kills=2, name=name, seed=1, quick=True)
    assert seen["kills"] == 2 and seen["differences"] == [] and seen["rows"] == 96
    assert seen["slowest_s"] < 5, seen
