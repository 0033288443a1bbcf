"""Paths with dual averaging: the rounds that warm starts save."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
import fcojax_sites
from fcojax import problems
from fcojax.algorithms import fed_dual_avg, fed_mid_osp
from fcojax.transforms import euclidean, l1


def federation(seed=0, dim=24):
    """Return a lasso on four sites whose columns are correlated."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(120, dim)) + 0.5 * rng.normal(size=(120, 1))
    y = x @ np.where(np.arange(dim) < 6, 1.0, 0.0) + rng.normal(size=120)
    return problems.least_squares(fcojax.from_rows({"x": x, "y": y}, [30] * 4))


def rates(problem, factory, scale=0.1):
    curvature = np.linalg.norm(np.asarray(problem.train.examples["x"]), 2) ** 2 / 120
    return factory.Hparams(client_lr=1 / curvature, server_lr=1.0, penalty_scale=scale)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
@pytest.mark.parametrize("factory", [fed_dual_avg, fed_mid_osp])
def test_a_warm_path_takes_at_most_half_the_rounds_of_cold_starts(factory, seed):
    problem = federation(seed)
    limits = {"eval_every": 5, "max_rounds": 20_000}
    hparams = rates(problem, factory)

    def method(loss):
        return factory(loss, euclidean(l1()))

    warm = fcojax_sites.path(
        problem, l1(), strengths=30, least=0.02, method=method, hparams=hparams, **limits
    )
    grid = [hparams._replace(penalty_scale=float(strength)) for strength in warm.strengths]
    cold, outcome = fcojax.solve(
        method(problem.loss),
        jax.tree.map(lambda *column: jnp.stack(column), *grid),
        jnp.zeros(24),
        problem.train,
        jax.random.split(jax.random.key(0), 1),
        fcojax.local_steps(1),
        certificate=fcojax.kkt(problem.loss, l1()),
        tolerance=1e-6 * float(warm.strengths[0]),
        **limits,
    )
    assert bool(warm.outcome.solved.all()) and bool(outcome.solved.all())
    # The first strength is a tie, which rounding decides.
    np.testing.assert_array_equal(warm.models[1:] != 0, cold[1:, 0] != 0)
    assert 2 * int(warm.outcome.rounds.sum()) <= int(outcome.rounds.sum())


SCHEDULED = {"fed_dual_avg": fed_dual_avg, "fed_mid_osp": fed_mid_osp}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULED)
def test_a_schedule_of_the_strength_within_a_run_ends_at_the_same_model(name):
    """The strength decreases geometrically to the last one in 100 rounds, and is then constant."""
    problem, factory = federation(dim=12), SCHEDULED[name]
    method = factory(problem.loss, euclidean(l1()))
    first = float(
        l1().scale_max(
            jax.grad(lambda w: problems.population_loss(problem.loss, w, problem.train))(
                jnp.zeros(12)
            )
        )
    )
    last, num_rounds = 0.1 * first, 2000
    strengths = np.maximum(first * 0.1 ** (np.arange(num_rounds) / 100), last)
    hparams = rates(problem, factory, fcojax.schedule(strengths))
    ends = [
        fcojax.run(
            method,
            hparams._replace(penalty_scale=scale),
            jnp.zeros(12),
            problem.train,
            jax.random.key(0),
            fcojax.local_steps(1),
            num_rounds=num_rounds,
        )[0]
        for scale in (hparams.penalty_scale, last)
    ]
    optimum = fcojax.reference.optimum(problem, l1(), last, tolerance=1e-12)
    for w in ends:
        np.testing.assert_array_equal(w != 0, optimum.params != 0)
        objective = problems.population_loss(problem.loss, w, problem.train) + last * jnp.sum(
            abs(w)
        )
        assert float(objective) == pytest.approx(float(optimum.objective), rel=1e-10)
    assert 0 < np.count_nonzero(optimum.params) < 12
