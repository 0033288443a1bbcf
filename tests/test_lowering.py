"""All programs can be lowered for GPU and TPU, without float64, host or missing calls."""

import functools
import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import lowered

pytestmark = pytest.mark.slow

PROGRAMS = list(lowered.programs())


@functools.cache
def found():
    root = pathlib.Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.lowered", *PROGRAMS],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("platform", lowered.KNOWN)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_lowered_in_single_precision_without_foreign_calls(name, platform):
    assert found()[name][platform] == []


def test_no_algorithm_and_no_kind_of_program_is_left_out():
    assert len(PROGRAMS) >= 125
    kinds = ("a round", "a sweep", "prox of", "mirror", "manifold", "measures of", "block")
    for kind in kinds:
        assert any(kind in name for name in PROGRAMS), kind


def to_the_host(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def print_it(x):
    jax.debug.print("{}", x)
    return x


@pytest.mark.parametrize(
    ("function", "platform", "fault"),
    [
        (to_the_host, "cuda", "it calls back to the host (pure_callback)"),
        (print_it, "tpu", "it calls back to the host"),
        (lambda x: 2 * x.astype(jnp.float64), "cuda", "f64 in it"),
        (lambda x: jnp.fft.fft(x.astype(jnp.float64)[0]).real, "tpu", "f64 in it"),
        (lambda x: jnp.linalg.eigvals(x).real, "tpu", "it cannot be lowered"),
        (lambda x: jnp.linalg.eigvals(x).real, "cuda", "which cuda lacks"),
        (lambda x: jnp.linalg.svd(x)[1], "cuda", None),
        (lambda x: jnp.linalg.eigh(x)[0], "tpu", None),
    ],
)
def test_faults_are_seen_and_named(function, platform, fault):
    found = lowered.faults(jax.jit(function).trace(jnp.ones((3, 3), jnp.float32)), platform)
    assert (fault is None and not found) or any(str(fault) in each for each in found), found
