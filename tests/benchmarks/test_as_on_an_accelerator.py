"""Small versions of the reference workloads, with the rules for a CPU and for an accelerator.

Both run on the CPU, so they differ only by rounding.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from benchmarks import networks
from benchmarks.settings import plan, setting
from benchmarks.workloads import WORKLOADS, draw
from configs import lasso
from experiments.config.settings import resolve
from experiments.execution.evaluation import observer
from experiments.execution.jobs import build
from fcojax.engine.hparams import as_arrays
from fcojax.xla.rules import pretend

SMALL = {
    "W1": {"num_clients": 12},
    "W2": {"num_clients": 5, "dim": 2000},
    "W3": {"num_clients": 12},
    "W5": {"num_clients": 30},
    "W6": {"num_clients": 40, "cohort_size": 30, "dim": 100},
}


def require_the_same(ends, rtol=1e-10):
    """Require equal results of both rules, up to rounding relative to the largest entry."""
    expected = ends()
    with pretend("cuda", int(1.4e11)):
        found = ends()
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.any() and one.dtype == other.dtype
        np.testing.assert_allclose(other, one, rtol=0, atol=rtol * np.abs(one).max())


def wide(array):
    """Return floats in float64, in which rounding is distinguishable from errors."""
    return array.astype(np.float64) if array.dtype == np.float32 else array


def given(name):
    workload = WORKLOADS[name]._replace(**SMALL[name])
    return workload, *map(wide, draw(workload))


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", ["fed_dual_avg", pytest.param("fed_avg", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", SMALL)
def test_linear_workloads(name, algorithm):
    workload, x, y = given(name)
    chosen, hparams, params, data = setting(workload, algorithm, x, y)
    params, how = jax.tree.map(wide, params), fcojax.Plan(*plan(workload))
    key = jax.random.key(0)
    with jax.numpy_rank_promotion("allow"):  # the losses add a bias to every row
        require_the_same(
            lambda: fcojax.run(chosen, hparams, params, data, key, how, num_rounds=6, eval_every=3)[
                0
            ]
        )


@pytest.mark.slow
def test_the_sweep():
    workload, x, y = given("W1")
    chosen, hparams, params, data = setting(workload, "fed_dual_avg", x, y)
    grid = jax.tree.map(lambda leaf: leaf * jnp.array([0.5, 1.0, 2.0]), as_arrays(hparams))
    keys, how = jax.random.split(jax.random.key(0), 2), fcojax.Plan(*plan(workload))
    params = jax.tree.map(wide, params)
    require_the_same(
        lambda: fcojax.sweep(chosen, grid, params, data, keys, how, num_rounds=6, eval_every=3)[0]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["W7", "W8"])
def test_networks(name):
    workload = WORKLOADS[name]._replace(num_clients=2, num_examples=8, batch_size=4, cohort_size=2)
    rows = dict(zip(("x", "y"), networks.draw(workload), strict=True))
    data = fcojax.from_rows(rows, [8, 8])
    task = networks.problem(workload, data)
    chosen, start = fcojax.algorithms.fed_avg(task.loss), task.init(jax.random.key(1))
    hparams = chosen.hparams_type(client_lr=workload.client_lr)
    key, how = jax.random.key(0), fcojax.Plan(*plan(workload))
    require_the_same(
        lambda: fcojax.run(chosen, hparams, start, data, key, how, num_rounds=2)[0], rtol=2e-5
    )


@pytest.mark.slow
def test_the_lassos_grid_and_its_measures():
    experiment, config = lasso.EXPERIMENT, lasso.get_config()
    lasso.quick(config)
    settings = resolve(config, experiment)
    problem, penalty = experiment.problem(config), experiment.penalty(config)
    job = build(experiment, config, settings, problem, penalty)[0]
    look = observer(problem, penalty, settings.penalty_scales[0])
    keys = jax.random.split(jax.random.key(0), 2)
    require_the_same(
        lambda: fcojax.sweep(
            job.algorithm,
            job.grid,
            problem.init(keys[0]),
            job.train,
            keys,
            job.plan,
            num_rounds=4,
            eval_every=2,
            observe=look,
            context=(problem.train, problem.validation),
        )[1]["objective"],
        rtol=1e-5,
    )
