"""Every penalty and constraint on vectors and pytrees, against every law it should obey."""

import hypothesis.strategies as st
import jax.numpy as jnp
import pytest
from hypothesis import given, settings

from fcojax import transforms
from tests.laws.penalty_laws import FIXED_LAWS, LAWS, Row, examples, pairs

TREE = {"bias": jnp.zeros(()), "empty": jnp.zeros((0,)), "kernel": jnp.zeros((2, 3))}
VECTOR = jnp.zeros(8)

PENALTIES = {
    "zero": Row(transforms.zero(), TREE),
    "l1": Row(transforms.l1(), TREE),
}


@pytest.mark.parametrize("law, name", pairs(LAWS, PENALTIES))
@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_law(law, name, data):
    law(PENALTIES[name], *data.draw(examples(PENALTIES[name])))


@pytest.mark.parametrize("law, name", pairs(FIXED_LAWS, PENALTIES))
def test_fixed_law(law, name):
    law(PENALTIES[name])
