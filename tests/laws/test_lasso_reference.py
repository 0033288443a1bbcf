"""The planted LASSO at full size: the results of the paper's Figure 3, within tolerances."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.problems import lasso
from tests.support import federations

pytestmark = [pytest.mark.slow, pytest.mark.gate]

RATES = {"client_lr": [0.001, 0.003, 0.01], "server_lr": [0.3, 1.0], "penalty_scale": [0.5]}


@functools.cache
def curves(name):
    """Return F1 and density every ten rounds, by (client_lr, server_lr)."""
    problem = lasso()
    algorithm = getattr(fcojax.algorithms, name)(
        problem.loss, fcojax.transforms.euclidean(federations.kernel_l1())
    )
    grid = fcojax.grid.product(getattr(fcojax.algorithms, name).Hparams, **RATES)
    grid = jax.tree.map(lambda column: column.astype(jnp.float32), grid)
    _, history = fcojax.sweep(
        algorithm,
        grid,
        problem.init(jax.random.key(1)),
        problem.train,
        jax.random.key(0)[None],
        num_rounds=500,
        eval_every=10,
        plan=fcojax.Plan(fcojax.local_steps(10, 10), fcojax.uniform_cohort(cohort_size=10)),
        observe=lambda hparams, params, context: problem.measures(params),
    )
    points = [(c, s) for c in RATES["client_lr"] for s in RATES["server_lr"]]
    return {
        point: {measure: np.asarray(history[measure][i, 0]) for measure in ("f1", "density")}
        for i, point in enumerate(points)
    }


def final(curve):
    """Return the mean over the last hundred rounds."""
    return curve[-10:].mean()


def test_dual_averaging_finds_the_support_within_a_hundred_rounds():
    assert curves("fed_dual_avg")[0.01, 1.0]["f1"][9] >= 0.99


def test_mirror_descent_at_the_same_rates_stays_dense():
    found = curves("fed_mid")[0.01, 1.0]
    assert final(found["f1"]) < 0.9
    assert final(found["density"]) > 0.6


@pytest.mark.parametrize("other", ["fed_mid"])
def test_dual_averaging_is_better_with_both_at_their_best(other):
    best, theirs = (
        max(final(curve["f1"]) for curve in curves(name).values())
        for name in ("fed_dual_avg", other)
    )
    assert best > theirs + 0.005
    assert best > 0.999
