import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from experiments.config.settings import resolve
from experiments.execution.evaluation import has_optimum, solve_optima
from experiments.report.summary import SUPPORT, Criterion
from experiments.studies.shared import with_support
from fcojax.transforms import euclidean, monotone
from tests.experiments.studies.fabricated import sweep_of
from tests.experiments.studies.quick_sweeps import quick_config

FIRST = Criterion("f1", "max", 20, 1e-3, 0.95)


def recovered(f1, after, density=0.5):
    """Return measures of a method that reaches this F1 after some rounds, for similar seeds."""
    return lambda seed, at: {
        "f1": (f1 if at >= after else 0.0) - 1e-4 * seed,
        "density": density + 1e-4 * seed**2,
    }


def found(ours_after=20):
    sweep, config = quick_config("lasso")
    config.num_rounds, config.eval_every, config.criterion_rounds = 100, 10, 20
    rows, summary = sweep_of(
        {
            "fed_dual_avg": {
                (0.01, 1.0): recovered(0.9995, ours_after),
                (0.001, 1.0): recovered(1.0, 70),
                (0.001, 0.3): recovered(0.995, 70),
                (0.1, 1.0): recovered(0.1, 10),
            },
            "fed_dual_avg_osp": {
                (0.001, 0.3): recovered(0.999, 60),
                (0.01, 0.3): recovered(0.9, 90),
            },
            "fed_mid": {(0.001, 0.3): recovered(0.97, 80, 0.6), (0.01, 0.3): recovered(0.5, 90)},
            "fed_mid_osp": {(0.001, 0.3): recovered(0.99, 40), (0.01, 0.3): recovered(0.4, 90)},
        },
        FIRST,
        range(0, 101, 10),
    )
    return summary, {(own.text, own.part): own for own in sweep.claims(config, rows, summary)}


def test_a_tie_goes_to_the_rates_that_recover_the_support_first():
    summary, claims = found()
    assert summary["algorithms"]["fed_dual_avg"]["best"] == {"client_lr": 0.01, "server_lr": 1.0}
    (larger,) = (claim for (text, _), claim in claims.items() if "larger rates" in text)
    assert larger.measured == pytest.approx(10) and larger.holds
    slow, _ = found(ours_after=100)
    assert slow["algorithms"]["fed_dual_avg"]["best"]["client_lr"] == 0.001


def test_claims_are_paired_over_the_seeds():
    pattern = "FedDualAvg recovers most of the pattern, more than FedMiD and FedMiD-OSP"
    expected = {
        (pattern, "FedMiD"): 0.0295,
        (pattern, "FedMiD-OSP"): 0.0095,
        ("FedDualAvg-OSP is very competitive", ""): 5e-4,
        ("FedDualAvg is the fastest", "FedDualAvg-OSP"): 40,
        ("FedDualAvg is the fastest", "FedMiD"): 60,
        ("FedDualAvg is the fastest", "FedMiD-OSP"): 20,
        ("FedMiD is the least sparse", ""): 0.1,
        ("FedDualAvg benefits from larger rates", ""): 10,
        ("FedDualAvg takes larger steps a round", ""): 0.01 / 0.0003,
        # Three of four rates are within 0.01 of its best, one of two for all others.
        ("more rates are good for FedDualAvg", ""): 0.25,
    }
    _, claims = found()
    assert {key: own.measured for key, own in claims.items()} == pytest.approx(expected)
    assert all(own.holds and not own.quick for own in claims.values())
    # FedMiD is best at the smallest rates of its grid.
    left_open = [text for (text, _), own in claims.items() if own.as_json()["open"]]
    assert left_open == ["FedMiD is the least sparse"]
    assert [own.measured for own in references("fed_dual_avg")] == []


def references(*names):
    """Return the claims on methods, of which the first has an F1 of one and half the objective."""
    sweep, config = quick_config("lasso")
    seen = [{"f1": 1 - 0.1 * i, "objective": 1.5 + 1.5 * i, "suboptimality": 0.3} for i in (0, 1)]
    points = {
        name: {(0.1, 1.0): lambda *_, own=m: own} for name, m in zip(names, seen, strict=False)
    }
    rows, summary = sweep_of(points, FIRST._replace(reach=None), (0, 10))
    return sweep.claims(config, rows, summary)


def test_references_are_judged_beside_one_another():
    ineffective = references("fed_dual_avg", "fed_avg_subgradient")
    assert [own.measured for own in ineffective] == pytest.approx([0.1, 2.0])
    [excess], [ahead] = references("prox_gd"), references("dual_averaging", "mirror_descent")
    assert (excess.measured, ahead.measured) == pytest.approx((0.25, 0.1))


@pytest.mark.parametrize("label", ["prox_gd", "mirror_descent"])
def test_a_reference_is_proximal_gradient_descent_on_pooled_data(label):
    sweep, config = quick_config("lasso")
    config.num_clients, config.num_examples, config.dim, config.num_true = 4, 5, 6, 3
    problem = sweep.problem(config)
    prox = sweep.penalty(config).prox
    factory = sweep.algorithms[label]
    train, work = sweep.plans["prox_gd"](config, problem)
    key, algorithm = jax.random.key(0), factory(problem.loss, euclidean(sweep.penalty(config)))
    start, hparams = problem.init(key), factory.Hparams(0.1, 1.0, 0.5)
    model, _ = fcojax.run(algorithm, hparams, start, train, key, work, num_rounds=3)
    slope = jax.grad(lambda w: jnp.mean(problem.loss(w, problem.train.examples)))
    w = start
    for _ in range(3):
        w = prox(jax.tree.map(lambda leaf, down: leaf - 0.1 * down, w, slope(w)), 0.1, 0.5)
    chex.assert_trees_all_close(model, w, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "measure"), [("validation", ""), ("pattern", "f1")])
def test_the_pooled_solver_chooses_the_strength(rule, measure):
    sweep, config = quick_config("lasso")
    config.candidates, config.strength = (3e-3, 0.03, 0.1, 100.0), rule
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):  # like the launcher
        data, penalty = sweep.problem(config), sweep.penalty(config)
        ranks = [
            (-seen.get(measure, 0.0), seen["validation_loss"], scale)
            for scale, seen in solve_optima(data, penalty, config.candidates)
        ]
        *_, chosen = min(ranks)
        assert resolve(config, sweep).penalty_scales == (chosen,)
        # Every algorithm has it, except one with its own grid.
        config.own_grids = {"fed_mid": {"penalty_scale": (0.7,)}}
        grids = resolve(config, sweep).grids
    assert [{*grids[name].penalty_scale.tolist()} for name in ("fed_mid", "fed_dual_avg")] == [
        {np.float32(0.7)},
        {np.float32(chosen)},
    ]
    assert chosen == {"validation": 0.03, "pattern": 0.1}[rule]


def test_a_config_that_names_no_rule_types_its_strength():
    sweep, config = quick_config("lasso")
    with config.unlocked():
        del config.strength, config.candidates
    assert resolve(config, sweep).penalty_scales == (0.5,)


@pytest.mark.slow
def test_weights_may_decrease_along_the_features():
    """The prox of the cone is that of increasing signals on the reversed weights."""
    sweep, config = quick_config("lasso")
    config.penalty = "decreasing"
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    start = problem.init(jax.random.key(0))
    assert float(penalty.value(start, 0.5)) == 0
    rough = jax.random.normal(jax.random.key(1), start["kernel"].shape)
    params = start | {"kernel": rough}
    moved = penalty.prox(params, 1.0, 0.5)
    assert float(jnp.max(jnp.diff(moved["kernel"], axis=0))) <= 1e-6
    np.testing.assert_allclose(
        moved["kernel"][::-1], monotone(axis=0).prox(params["kernel"][::-1], 1.0, 0.5), atol=1e-6
    )
    truth = {"kernel": (jnp.arange(config.dim) < config.num_true).astype(jnp.float32)}
    truth["kernel"] = truth["kernel"].reshape(params["kernel"].shape)
    assert float(problem.measures(params | truth)["f1"]) == 1
    assert float(penalty.value(params | truth, 0.5)) == 0
    assert sweep.claims(config, [], {"algorithms": {}}) == []


def test_supports_have_numbers_of_their_own():
    """All subsets of ten entries, with two magnitudes, of which one is below the threshold."""
    problem = with_support(
        fcojax.problems.lasso(num_clients=2, num_examples=2, dim=10, num_true=3), 0.01
    )
    subsets = (np.arange(2**10)[:, None] >> np.arange(10)) % 2 * 2.0 - 1  # none is zero
    kernels = np.where(subsets > 0, [[[3.0]], [[-0.02]]], 0.009).astype(np.float32)

    def code(kernel):
        return problem.measures({"kernel": kernel, "bias": jnp.zeros(())})[SUPPORT]

    codes = np.asarray(jax.vmap(jax.vmap(code))(kernels))
    assert codes.dtype == np.uint32 and np.unique(codes[0]).size == 2**10
    np.testing.assert_array_equal(codes[0], codes[1])


def test_the_optimum_is_found_where_it_is_convex_shown_and_within_reach():
    sweep, config = quick_config("lasso")
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    assert has_optimum(sweep, problem, penalty, FIRST)
    assert not has_optimum(sweep, problem._replace(convex=False), penalty, FIRST)
    assert not has_optimum(sweep, problem, penalty._replace(convex=False), FIRST)
    unseen = sweep._replace(panels=sweep.panels[:1])
    assert not has_optimum(unseen, problem, penalty, FIRST)
    assert has_optimum(unseen, problem, penalty, FIRST._replace(measure="suboptimality"))
    with pytest.raises(TimeoutError, match="rows have no suboptimality"):
        next(solve_optima(problem, penalty, (0.5,), limit=0.0))
