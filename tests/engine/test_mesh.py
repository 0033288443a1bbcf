"""Matrices on many devices: the same numbers, and no deadlock."""

import jax
import jax.numpy as jnp
import pytest

from fcojax.engine.placement.mesh import decomposes_on_a_cpu
from fcojax.transforms import nuclear
from fcojax.xla import linalg


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
