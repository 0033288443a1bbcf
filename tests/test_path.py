"""Paths of strengths: optimal models, first strengths, warm starts, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import problems
from fcojax.algorithms import fed_avg, fed_dual_avg, fed_mid_osp
from fcojax.transforms import euclidean, l1, monotone, named, nuclear, on_subtree

pytestmark = pytest.mark.gate

PENALTY = on_subtree(l1(), named("kernel"))
ONE_STEP = fcojax.local_steps(1)


def population(kind="linear", sizes=(20, 12, 8), dim=6):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(sum(sizes), dim))
    z = x @ np.where(np.arange(dim) < 2, 1.0, 0.0) + 0.5
    noise = rng.normal(size=z.size)
    y = z + 0.3 * noise if kind == "linear" else (noise < z).astype(np.int32)
    return fcojax.from_rows({"x": x, "y": y}, list(sizes), weights="examples")


def lasso():
    """Return least squares in float64 whose start point is in float32."""
    start = {"kernel": jnp.zeros(6, jnp.float32), "bias": jnp.zeros((), jnp.float32)}
    return problems.linear(population())._replace(init=lambda key: start)


def matrices():
    """Return a regression with three targets, so that the parameters are a matrix."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(24, 4))
    w = np.outer(rng.normal(size=4), rng.normal(size=3))
    data = fcojax.from_rows({"x": x, "y": x @ w + 0.1 * rng.normal(size=(24, 3))}, [12, 12])

    def loss(w, rows):
        return 0.5 * jnp.sum((rows["x"] @ w - rows["y"]) ** 2, axis=1)

    return problems.Problem(loss, data, None, lambda key: jnp.zeros((4, 3)))


PATHS = {
    "lasso": (lasso, PENALTY),
    "nuclear": (matrices, nuclear()),
    "logistic": (lambda: problems.logistic(population("logistic")), PENALTY),
}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in PATHS if name != "lasso"]


@pytest.mark.parametrize("name", ["lasso", *SLOW])
def test_models_are_optimal_and_the_first_strength_is_the_least_with_zeros(name):
    make, penalty = PATHS[name]
    problem = make()
    found = fcojax.path(problem, penalty, strengths=4, least=0.05, tolerance=1e-8)
    assert bool(found.outcome.solved.all())
    first = float(found.strengths[0])
    np.testing.assert_allclose(found.strengths, first * np.geomspace(1, 0.05, 4), rtol=1e-12)

    @jax.jit
    def objective(model, strength):
        fit = problems.population_loss(problem.loss, model, problem.train)
        return fit + penalty.value(model, strength)

    for index, strength in enumerate(found.strengths.tolist()):
        optimum = fcojax.reference.optimum(problem, penalty, strength, tolerance=1e-10)
        model = jax.tree.map(lambda leaf, i=index: leaf[i], found.models)
        expected = float(optimum.objective)
        assert float(objective(model, strength)) == pytest.approx(expected, rel=1e-8)
        for ours, best in zip(*map(jax.tree.leaves, (model, optimum.params)), strict=True):
            np.testing.assert_array_equal(ours != 0, abs(best) > 1e-8)
    null = jax.tree.map(lambda leaf: leaf[0], found.models)
    penalised = jax.tree.leaves(null)[-1]
    assert penalised.dtype == jnp.float64 and not np.any(penalised)
    violation = jax.jit(
        lambda strength: fcojax.kkt_violation(problem.loss, penalty, strength, null, problem.train)
    )
    more, less = violation(1.001 * first), violation(0.999 * first)
    assert more <= 1e-8 * first and less > 1e-4 * first


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"penalty": monotone()}, "no scale_max"),
        ({"strengths": [-1.0]}, "at least 0"),
        ({"strengths": []}, "a list of numbers"),
        ({"strengths": 0}, "at least 1"),
        ({"method": fed_avg}, "no penalty_scale"),
        ({"method": lambda loss: loss}, "algorithm"),
    ],
)
def test_refusals(arguments, message):
    arguments = {"problem": problems.linear(population()), "penalty": PENALTY} | arguments
    with pytest.raises(ValueError, match=message):
        fcojax.path(**arguments)


def federation():
    """Return a lasso on four clients whose columns are correlated, and a rate."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 24)) + 0.5 * rng.normal(size=(120, 1))
    y = x @ np.where(np.arange(24) < 6, 1.0, 0.0) + rng.normal(size=120)
    rate = 120 / np.linalg.norm(x, 2) ** 2
    return problems.least_squares(fcojax.from_rows({"x": x, "y": y}, [30] * 4)), rate


@pytest.mark.slow
@pytest.mark.parametrize("factory", [fed_dual_avg, fed_mid_osp])
def test_a_path_takes_at_most_half_the_rounds_of_cold_starts(factory):
    problem, rate = federation()
    limits = {"eval_every": 5, "max_rounds": 20_000}
    hparams = factory.Hparams(client_lr=rate, server_lr=1.0)

    def method(loss):
        return factory(loss, euclidean(l1()))

    warm = fcojax.path(
        problem, l1(), strengths=30, least=0.02, method=method, hparams=hparams, **limits
    )
    grid = [hparams._replace(penalty_scale=float(strength)) for strength in warm.strengths]
    cold, outcome = fcojax.solve(
        method(problem.loss),
        jax.tree.map(lambda *column: jnp.stack(column), *grid),
        jnp.zeros(24),
        problem.train,
        jax.random.split(jax.random.key(0), 1),
        ONE_STEP,
        certificate=fcojax.kkt(problem.loss, l1()),
        tolerance=1e-6 * float(warm.strengths[0]),
        **limits,
    )
    assert bool(warm.outcome.solved.all()) and bool(outcome.solved.all())
    # The first strength is a tie, which rounding decides.
    np.testing.assert_array_equal(warm.models[1:] != 0, cold[1:, 0] != 0)
    assert 2 * int(warm.outcome.rounds.sum()) <= int(outcome.rounds.sum())


@pytest.mark.slow
def test_strengths_are_solved_in_the_given_order_and_a_longer_path_begins_with_the_same_solves():
    problem, rate = federation()
    hparams = fed_mid_osp.Hparams(client_lr=rate)
    plan = fcojax.Plan(ONE_STEP, fcojax.uniform_cohort(cohort_size=2))
    given = {"hparams": hparams, "plan": plan, "max_rounds": 20}
    short, long = (
        fcojax.path(problem, l1(), strengths=strengths, **given)
        for strengths in ([0.1, 0.2], [0.1, 0.2, 0.0])
    )
    np.testing.assert_array_equal(long.strengths, [0.1, 0.2, 0.0])
    np.testing.assert_array_equal(short.models, long.models[:2])
    assert np.any(short.models[0] != short.models[1]) and np.all(long.models[2] != 0)


def test_after_a_solve_that_diverged_the_next_one_starts_from_the_model_before():
    problem, _ = federation()
    found = fcojax.path(
        problem, l1(), strengths=[50.0, 0.1, 50.0], hparams=fed_mid_osp.Hparams(client_lr=100.0)
    )
    assert found.outcome.diverged.tolist() == [False, True, False]
    assert found.outcome.rounds[2] == 0 and not np.any(found.models[2])
