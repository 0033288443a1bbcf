"""How many points fit: told by dry compiles, and only where there is a need."""

import jax
import jax.numpy as jnp
import pytest

from fcojax.engine.memory import needed_bytes, points_that_fit

MEGABYTE = 1 << 20


@jax.jit
def sorted_rows(rows):
    """A program whose result and buffers are as large as its argument."""
    return jnp.sort(rows * 2.0, axis=1)


def lower(num_points):
    return sorted_rows.lower(jax.ShapeDtypeStruct((num_points, MEGABYTE // 8), float))


def test_the_compiler_counts_arguments_and_results():
    assert needed_bytes(lower(2).compile()) >= 4 * MEGABYTE


def test_as_many_fit_as_half_the_memory_holds():
    room = 64 * MEGABYTE
    fit = points_that_fit(lower, 1000, MEGABYTE, memory=2 * room)
    assert 1 < fit < 1000
    assert needed_bytes(lower(fit).compile()) <= room < needed_bytes(lower(fit + 1).compile())


def test_at_least_one_point_runs_whatever_the_memory():
    assert points_that_fit(lower, 1000, MEGABYTE, memory=1) == 1


@pytest.mark.parametrize(("num_points", "point_bytes"), [(4, MEGABYTE), (1000, 8)])
def test_small_grids_and_small_states_need_no_dry_compile(num_points, point_bytes):
    def refuse(num_points):
        raise AssertionError("a program was lowered")

    assert points_that_fit(refuse, num_points, point_bytes, memory=8 * MEGABYTE) == num_points
