"""Regularisation paths against other libraries: models, first strengths and traffic."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Lasso, LogisticRegression

import fcojax
import fcojax_sites
from fcojax import problems, robust, uploads
from fcojax.algorithms import fed_dual_avg, fed_mid_osp
from fcojax.problems.linear_models import half_square, poisson_loss
from fcojax.problems.logistic import logistic_loss
from fcojax.transforms import (
    elastic_net,
    euclidean,
    group_l2,
    l1,
    monotone,
    named,
    nuclear,
    on_subtree,
)
from fcojax_sites.selection.second_moments import on_moments, summary_of
from fcojax_sites.selection.summary import usable_summary

pytestmark = pytest.mark.gate

PENALTY = on_subtree(l1(), named("kernel"))


def population(kind="linear", sizes=(20, 12, 8), dim=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(sum(sizes), dim))
    z = x @ np.where(np.arange(dim) < 2, 1.0, 0.0) + 0.5
    y = {
        "linear": lambda: z + 0.3 * rng.normal(size=z.size),
        "logistic": lambda: (rng.logistic(size=z.size) < z).astype(np.int32),
        "poisson": lambda: rng.poisson(np.exp(0.5 * z)).astype(float),
    }[kind]()
    return fcojax.from_rows({"x": x, "y": y}, list(sizes), weights="examples")


def test_lasso_path_and_ledger_against_scikit_learn():
    data = population()
    found = fcojax_sites.path(
        problems.linear(data), PENALTY, strengths=3, least=0.05, tolerance=1e-8
    )
    x, y = (np.asarray(data.examples[name]) for name in "xy")
    centred = (x - x.mean(0)).T @ (y - y.mean()) / len(y)
    assert float(found.strengths[0]) == pytest.approx(np.abs(centred).max(), rel=1e-6)
    assert bool(found.outcome.solved.all()) and found.num_nonzero[0] == 1  # only the bias
    for index, strength in enumerate(found.strengths.tolist()):
        lasso = Lasso(alpha=strength, tol=1e-12, max_iter=100_000).fit(x, y)
        np.testing.assert_allclose(found.models["kernel"][index], lasso.coef_, atol=1e-6)
        assert float(found.models["bias"][index]) == pytest.approx(lasso.intercept_, abs=1e-6)
    # A model is seven floats. Rounds and certificates send one down and one up, rounds also the
    # number of steps; the first strength takes two gradients, the curvature of a quadratic 30 power
    # iterations at the start and 30 at the first strength, each with a direction down.
    rounds, checks = (int(np.sum(getattr(found.outcome, name))) for name in ("rounds", "checks"))
    on_path = {entry.part: (entry.down, entry.up) for entry in found.ledger.entries}
    np.testing.assert_array_equal(on_path["path"][0], np.full(3, 56 * (rounds + checks)))
    np.testing.assert_array_equal(on_path["path"][1], 56 * (rounds + checks) + 8 * rounds)
    np.testing.assert_array_equal(on_path["rates"][0], np.full(3, 56 * (2 + 2 * (30 + 30))))
    assert str(found).count("solved by round") == 3


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"penalty": monotone()}, "no scale_max"),
        ({"strengths": [-1.0]}, "at least 0"),
        ({"strengths": []}, "a list of numbers"),
        ({"method": lambda loss: fcojax.algorithms.fed_avg(loss)}, "no penalty_scale"),
    ],
)
def test_refusals(arguments, message):
    arguments = {"problem": problems.linear(population()), "penalty": PENALTY} | arguments
    for choose in (fcojax_sites.path, fcojax_sites.select):
        with pytest.raises(ValueError, match=message):
            choose(**arguments)


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
    "elastic_net": (
        lambda: problems.linear(population()),
        on_subtree(elastic_net(0.5), named("kernel")),
    ),
    "group_l2": (matrices, group_l2(axis=1)),
    "nuclear": (matrices, nuclear()),
    "logistic": (lambda: problems.logistic(population("logistic")), PENALTY),
    "poisson": (lambda: problems.poisson(population("poisson")), PENALTY),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    PATHS,
)
def test_models_are_optimal_and_the_first_strength_is_the_least_with_zeros(name):
    make, penalty = PATHS[name]
    problem = make()
    found = fcojax_sites.path(problem, penalty, strengths=4, least=0.05, tolerance=1e-8)
    assert bool(found.outcome.solved.all())
    for index, strength in enumerate(found.strengths.tolist()):
        optimum = fcojax.reference.optimum(problem, penalty, strength, tolerance=1e-10)
        assert float(found.objective[index]) == pytest.approx(float(optimum.objective), rel=1e-9)
    # Just below the first strength some parameter is not zero.
    first = float(found.strengths[0])
    models = fcojax_sites.path(problem, penalty, strengths=[first * 1.001, first * 0.99]).models
    penalised = jax.tree.leaves(models)[-1]
    assert not np.any(penalised[0]) and np.any(penalised[1])


def sites(kind):
    """Return four clients of 200 rows with 30 features, scaled so that F has curvature below 1."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(800, 30)) + 0.2 * np.repeat(rng.normal(size=(4, 30)), 200, axis=0)
    truth = np.where(np.arange(30) < 8, rng.choice([-1.0, 1.0], 30), 0.0)
    z = 0.5 * x @ truth + 0.3
    x = x / np.sqrt(np.linalg.norm(x.T @ x, 2) / 800 * (4.0 if kind == "poisson" else 1.1))
    y = {
        "linear": lambda: z + rng.normal(size=800),
        "logistic": lambda: (rng.logistic(size=800) < z).astype(np.int32),
        "poisson": lambda: rng.poisson(np.exp(np.clip(z, None, 1) - 1)).astype(float),
    }[kind]()
    return fcojax.from_rows({"x": x, "y": y}, [200] * 4)


def pooled_answer(kind, x, y, scale):
    if kind == "linear":
        lasso = Lasso(alpha=scale, tol=1e-14, max_iter=1_000_000, fit_intercept=False)
        return lasso.fit(x, y).coef_
    if kind == "logistic":
        regression = LogisticRegression(
            l1_ratio=1.0,
            C=1 / (800 * scale),
            solver="saga",
            tol=1e-12,
            max_iter=100_000,
            fit_intercept=False,
        )
        return regression.fit(x, y).coef_[0]
    w = cp.Variable(30)
    fit = cp.sum(cp.exp(x @ w) - cp.multiply(y, x @ w)) / 800
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)
    cp.Problem(cp.Minimize(fit + scale * cp.norm1(w))).solve(solver="CLARABEL", **tight)
    return w.value


LOSSES = {
    "linear": half_square,
    "logistic": logistic_loss,
    "poisson": poisson_loss,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("factory", [fed_mid_osp, fed_dual_avg])
def test_solve_reaches_the_pooled_optimum(kind, factory):
    """One full-batch step per round, both rates 1, in float64: KKT below 1e-7 in 10,000 rounds."""
    data, scale = sites(kind), 0.02

    def loss(w, rows):
        return LOSSES[kind]({"kernel": w, "bias": jnp.zeros(())}, rows)

    model, outcome = fcojax.solve(
        factory(loss, euclidean(l1())),
        factory.Hparams(client_lr=1.0, server_lr=1.0, penalty_scale=scale),
        jnp.zeros(30),
        data,
        jax.random.key(0),
        fcojax.local_steps(1),
        certificate=fcojax.kkt(loss, l1()),
        tolerance=1e-7,
        eval_every=20,
        max_rounds=10_000,
    )
    assert outcome.solved and outcome.violation < 1e-7
    x, y = (np.asarray(data.examples[name], float) for name in "xy")
    answer = pooled_answer(kind, x, y, scale)
    np.testing.assert_allclose(model, answer, atol=1e-5)
    assert 0 < np.count_nonzero(answer.round(6)) < 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(problems.linear, id="bias"),
        pytest.param(problems.least_squares, id="ridge"),
    ],
)
def test_second_moments_in_place_of_all_rows_give_the_same_path(make):
    penalty = PENALTY if make is problems.linear else l1()
    problem = make(population(), **({} if make is problems.linear else {"ridge": 0.3}))
    known = on_moments(problem)
    assert usable_summary(known, fcojax.Plan(fcojax.local_steps(1))) is summary_of(known)
    ours, plain = (
        fcojax_sites.path(some, penalty, strengths=4, least=0.05, tolerance=1e-9)
        for some in (problem, problem._replace(loss=lambda w, rows: problem.loss(w, rows)))
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11), ours[:3], plain[:3])
    for entry, other in zip(ours.ledger.entries[1:], plain.ledger.entries[1:], strict=True):
        jax.tree.map(np.testing.assert_array_equal, entry, other)
    less, more = (found.ledger.entries[0].up[0] for found in (ours, plain))
    num_bytes = sum(leaf[0].nbytes for leaf in jax.tree.leaves(ours.models))
    assert more - less == 3 * 3 * num_bytes  # three power iterations at each further strength


@pytest.mark.slow
@pytest.mark.parametrize("choose", [fcojax_sites.path, fcojax_sites.select])
def test_two_entries_of_each_upload_with_feedback_give_the_same_models(choose):
    """The ledger counts encoded uploads, and the whole gradients of certificates."""
    problem = problems.linear(population())
    given = {"strengths": 3, "least": 0.05, "tolerance": 1e-9}
    ef21 = uploads.ef21(uploads.top_k(2))
    plain, found = (
        choose(
            problem,
            PENALTY,
            plan=fcojax.Plan(fcojax.local_steps(1), uploads=one),
            **given,
        )
        for one in (uploads.chain(), ef21)
    )
    paths = [getattr(each, "path", each) for each in (plain, found)]
    for leaf, wanted in zip(*(jax.tree.leaves(path.models) for path in paths), strict=True):
        np.testing.assert_allclose(leaf, wanted, atol=1e-7)
    outcome = paths[1].outcome
    assert bool(outcome.solved.all())
    rounds, checks = int(np.sum(outcome.rounds)), int(np.sum(outcome.checks))
    sent = {entry.part: entry for entry in found.ledger.entries}["path"]
    each = 2 * 8 + 1 + 8  # two entries of seven, their indices in three bits, the step size
    np.testing.assert_array_equal(sent.up, np.full(3, each * rounds + 56 * checks))
    np.testing.assert_array_equal(sent.down, np.full(3, 56 * (rounds + checks)))


def test_a_summary_is_used_only_where_the_server_needs_nothing_but_gradients():
    problem, one_step = on_moments(problems.least_squares(population())), fcojax.local_steps(1)
    assert usable_summary(problem, fcojax.Plan(one_step, client_chunk_size=2))
    for plan in (
        fcojax.Plan(fcojax.local_steps(2)),
        fcojax.Plan(fcojax.local_steps(1, 4)),
        fcojax.Plan(one_step, uploads=fcojax.dropout(0.1)),
        fcojax.Plan(one_step, uploads=uploads.UploadTransform("identity")),
        fcojax.Plan(one_step, uploads=fcojax.norm_bound(1.0)),
        fcojax.Plan(one_step, aggregator=robust.median()),
    ):
        assert not usable_summary(problem, plan)
    wide = fcojax.from_rows({"x": np.ones((3, 9)), "y": np.ones(3)}, [2, 1])
    assert not usable_summary(on_moments(problems.least_squares(wide)), fcojax.Plan(one_step))


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [40, 1024, 2500])  # slices of 1,024 rows and a remainder
def test_the_summary_of_integer_features(num_rows):
    rng = np.random.default_rng(3)
    x, y = rng.integers(2, size=(num_rows, 4)), rng.normal(size=num_rows)
    first = num_rows - 15
    problem = problems.linear(fcojax.from_rows({"x": x, "y": y}, [first, 15], weights=[1.0, 0.0]))
    model = {"bias": jnp.array(0.3), "kernel": jnp.array([1.0, -2.0, 0.0, 0.5])}
    expected = np.mean((x[:first] @ np.array([1.0, -2.0, 0.0, 0.5]) + 0.3 - y[:first]) ** 2) / 2
    problem = on_moments(problem)
    found = problems.population_loss(problem.loss, model, summary_of(problem)(problem.train))
    assert float(found) == pytest.approx(expected, rel=1e-12)
