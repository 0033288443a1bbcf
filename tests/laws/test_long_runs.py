"""Sums that grow for as long as a run lasts, in float32 against float64."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

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


@pytest.mark.long
@pytest.mark.parametrize("num_rounds", [20_000, 200_000])
def test_dual_averaging_in_float32_does_not_degrade_with_rounds(num_rounds):
    """Plain sums of dual and elapsed time are off by 7e-5 and 7e-4 here."""
    single, double = (model(kind, num_rounds) for kind in ("float32", "float64"))
    assert max(abs(a - b) for a, b in zip(single, double, strict=True)) < 5e-6
