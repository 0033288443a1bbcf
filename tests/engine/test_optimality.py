"""The violation of optimality: what it refuses."""

import jax.numpy as jnp
import pytest

import fcojax
from tests.engine.test_solve import DATA, KKT, loss, rates

L1 = fcojax.transforms.l1()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((loss, fcojax.transforms.l1, 0.1, jnp.zeros(3), DATA), "penalty is the function l1; call"),
        ((None, L1, 0.1, jnp.zeros(3), DATA), "loss is None"),
        ((loss, None, 0.1, jnp.zeros(3), DATA), "penalty is None"),
        ((loss, L1, 0.1, jnp.zeros(3), DATA.examples), "data is"),
    ],
)
def test_the_violation_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        fcojax.kkt_violation(*arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [((None, None), "loss is None"), ((loss, fcojax.transforms.l1), "call it: l1")],
)
def test_the_certificate_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        fcojax.kkt(*arguments)


def test_equal_certificates_are_one_function():
    """So that a program is compiled once."""
    assert fcojax.kkt(loss, L1) is KKT
    found = KKT(rates(), jnp.zeros(3), DATA)["violation"]
    assert found == fcojax.kkt_violation(loss, L1, 0.1, jnp.zeros(3), DATA)
