"""Matrices on many devices: the same numbers, and no deadlock."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.engine.placement.mesh import decomposes_on_a_cpu
from fcojax.transforms import nuclear
from fcojax.xla import linalg


@pytest.mark.slow
def test_one_and_eight_devices_give_the_same_numbers():
    """Eight devices decompose matrices on fewer cores without a deadlock."""
    root = pathlib.Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.on_many_devices"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": os.fspath(root / ".jax_cache")},
    )
    assert done.returncode == 0, done.stderr
    one, eight = map(np.array, json.loads(done.stdout))
    assert np.isfinite(one).all() and np.unique(one).size > 100
    np.testing.assert_allclose(eight, one, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("function", "decomposes"),
    [
        (lambda x: jnp.linalg.svd(x)[1], False),
        (lambda x: jax.lax.scan(lambda c, _: (jnp.linalg.qr(c)[0], None), x, length=2)[0], False),
        (lambda x: jax.vmap(jnp.linalg.eigvalsh)(jnp.stack([x, x])), True),
        (lambda x: jax.vmap(linalg.symmetric_eigh)(jnp.stack([x, x])), False),
        (lambda x: jax.vmap(lambda m: nuclear().prox(m, 0.1, 1.0))(jnp.stack([x, x])), False),
        (lambda x: jax.vmap(jnp.linalg.solve, (0, None))(jnp.stack([x, x]), x), True),
        (
            lambda x: jax.lax.cond(
                x[0, 0] > 0, lambda c: jnp.linalg.qr(c)[0], jnp.sin, jnp.stack([x, x])
            ),
            True,
        ),
    ],
)
def test_programs_that_decompose_batches_of_matrices_are_recognised(function, decomposes):
    """Several CPU devices would wait for each other's threads in batched decompositions."""
    assert decomposes_on_a_cpu(jax.jit(function).trace(jnp.eye(3))) == decomposes
