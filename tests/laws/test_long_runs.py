"""Sums that grow during a whole run, in float32."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import algorithms
from fcojax.problems.least_squares import half_squared_error
from fcojax.transforms import euclidean, l1
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


def test_dual_averaging_in_float32_does_not_degrade_with_rounds():
    """Plain sums of dual and elapsed time end at a distance of 1.6e-4 here."""
    rng = np.random.default_rng(0)
    chosen = algorithms.fed_dual_avg(half_squared_error, euclidean(l1()))
    x = rng.standard_normal((4, 40, 20))
    y = x[..., :5].sum(-1) + rng.standard_normal((4, 1)) + 0.5 * rng.standard_normal((4, 40))
    found, rows = [], {"x": x.reshape(160, 20), "y": y.ravel()}
    for kind in (np.float32, np.float64):
        with jax.enable_x64(kind is np.float64):
            narrow = {name: v.astype("f").astype(kind) for name, v in rows.items()}
            data = fcojax.from_rows(narrow, [40] * 4)
            rates = chosen.hparams_type(client_lr=1e-3, penalty_scale=0.1)
            given = chosen, rates, jnp.zeros(20, kind), data, jax.random.key(0)
            work = fcojax.local_steps(1)
            found.append(fcojax.run(*given, work, num_rounds=200_000, eval_every=200_000)[0])
    assert np.max(np.abs(np.subtract(*map(np.asarray, found), dtype=float))) < 5e-6
