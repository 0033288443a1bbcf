"""Sums that grow during a whole run, in float32."""

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import fcojax
from tests.laws import test_heterogeneous_lasso as lasso

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parent.parent.parent
SCRIPT = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
import fcojax
from fcojax.transforms import euclidean, l1

double, num_rounds = sys.argv[1] == "float64", int(sys.argv[2])
jax.config.update("jax_enable_x64", double)
rng = np.random.default_rng(0)
x = rng.standard_normal((4, 40, 20)).astype(np.float32)
y = (x[..., :5].sum(-1) + rng.standard_normal((4, 1)) + 0.5 * rng.standard_normal((4, 40)))
kind = np.dtype(sys.argv[1])
data = fcojax.from_clients(
    [{"x": a.astype(kind), "y": b.astype(np.float32).astype(kind)} for a, b in zip(x, y)]
)
fed_dual_avg = fcojax.algorithms.fed_dual_avg
model, _ = fcojax.run(
    fed_dual_avg(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2 / 2, euclidean(l1())),
    fed_dual_avg.Hparams(client_lr=1e-3, penalty_scale=0.1), jnp.zeros(20, kind), data,
    jax.random.key(0), fcojax.local_steps(1), num_rounds=num_rounds, eval_every=num_rounds,
)
print(json.dumps(np.asarray(model, float).tolist()))
"""


def model(kind, num_rounds):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, kind, str(num_rounds)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("num_rounds", [20_000, 200_000])
def test_dual_averaging_in_float32_does_not_degrade_with_rounds(num_rounds):
    """Plain sums of dual and elapsed time have errors of 7e-5 and 7e-4 here."""
    single, double = (model(kind, num_rounds) for kind in ("float32", "float64"))
    assert max(abs(a - b) for a, b in zip(single, double, strict=True)) < 5e-6


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
