"""Arguments that the violation of optimality refuses."""

import jax.numpy as jnp

import fcojax
from tests.engine.test_solve import DATA, KKT, loss, rates

L1 = fcojax.transforms.l1()


def test_equal_certificates_are_one_function():
    """Equal certificates compile a program once."""
    assert fcojax.kkt(loss, L1) is KKT
    found = KKT(rates(), jnp.zeros(3), DATA)["violation"]
    assert found == fcojax.kkt_violation(loss, L1, 0.1, jnp.zeros(3), DATA)
