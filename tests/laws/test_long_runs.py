"""Sums that grow during a whole run, in float32."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

import fcojax
from tests.laws import test_heterogeneous_lasso as lasso

pytestmark = pytest.mark.slow


@functools.cache
def in_float32():
    data = lasso.task().data
    rows = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), data.examples)
    return dataclasses.replace(data, examples=rows)


def after_20000_rounds(row, cohort=()):
    given = lasso.build(row), lasso.hparams(row), 20_000, lasso.K, cohort
    return lasso.last(*given, in_float32(), jnp.float32)


@pytest.mark.parametrize("method", [name for name in lasso.EXACT if lasso.EXACT[name].floor])
def test_exact_methods_in_float32_do_not_drift_in_20000_rounds(method):
    """With half of the clients the server never recomputes its sums."""
    row = lasso.EXACT[method]
    model = after_20000_rounds(row, (fcojax.uniform_cohort(cohort_size=4),))
    assert model.dtype == jnp.float32
    assert row.floor is not None and lasso.distance(model) < row.floor
