import jax
import jax.numpy as jnp
import numpy as np
import pytest

import configs.emnist
import fcojax
from experiments.report.rows import column, select
from experiments.studies.emnist import rows as emnist


def quick_config():
    config = configs.emnist.get_config()
    configs.emnist.quick(config)
    return config


@pytest.mark.slow
def test_a_quick_run_is_feasible_and_draws_its_figure(found, tmp_path):
    study, config, rows, summary = found
    claims = study.claims(config, rows, summary)
    feasible = [claim for claim in claims if "in its ball" in claim.text]
    assert len(feasible) == len(config.algorithms)
    assert all(claim.holds for claim in feasible)
    num_settings = len(config.models) * len(config.constraints) * 2
    assert len(claims) - len(feasible) == num_settings
    assert len(summary["best"]) == num_settings * len(config.algorithms)
    (drawn,) = study.figures(config, rows, summary, tmp_path)
    assert drawn.stat().st_size > 20_000


@pytest.mark.slow
def test_the_best_point_has_the_least_loss_over_the_last_evaluations(found):
    _, config, rows, _ = found
    setting = {"model": "softmax", "constraint": "l1", "radius": 100.0, "algorithm": "fed_mid"}
    points = select(rows, part="point", **setting)
    [best] = [point for point in points if point["best"]]
    assert best["score"] == min(column(points, "score"))
    curve = select(rows, part="curve", **setting)
    assert np.mean(column(curve, "loss")[-5:]) == pytest.approx(best["score"], rel=1e-6)
    assert {row["round"] for row in curve} == set(range(4, 44, 4))


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["l1", "l2"])
def test_the_violation_is_the_relative_excess_of_a_norm(constraint):
    config = quick_config()
    task = emnist.task(config, emnist.data(config), "softmax", constraint)
    start = task.ball.prox(task.problem.init(jax.random.key(0)), 0.0, 0.5)
    kernel = jnp.zeros_like(start["kernel"]).at[0, 0].set(0.75)
    hparams = type("Radius", (), {"penalty_scale": 0.5})
    sets = task.problem.train, task.problem.validation
    inside, outside = (
        task.observe(hparams, params, sets)["violation"]
        for params in (start, start | {"kernel": kernel})
    )
    assert float(inside) < 1e-6
    assert float(outside) == pytest.approx(0.5)


def test_losses_of_both_methods_are_compared_seed_by_seed():
    config = quick_config()
    config.algorithms, config.seeds = ("fed_dual_avg", "fed_mid"), (0, 1, 2)
    place = {"model": "softmax", "constraint": "l1", "radius": 10.0}
    point = {"part": "point", "violation": 0.0, "score": 1.0, "best": True}
    losses = {"fed_dual_avg": (0.9, 1.8, 2.6), "fed_mid": (1.0, 2.0, 3.0)}
    rows = [point | place | {"algorithm": name} for name in losses] + [
        {"part": "curve", "algorithm": name, "seed": seed, "round": at, "loss": loss + early}
        | place
        for name, ends in losses.items()
        for seed, loss in enumerate(ends)
        for at, early in ((10, 5.0), (20, 5.0), (30, 0.0), (40, 0.0))
    ]
    *_, claim = configs.emnist.EXPERIMENT.claims(config, rows, {})
    assert claim.measured == pytest.approx(np.mean([0.9, 0.9, 2.6 / 3]))
    assert claim.holds and claim.interval[1] < 1 and not claim.source


@pytest.mark.parametrize("model, num_features", [("klr", 64), ("qlr", 196 * 197 // 2)])
def test_images_become_random_or_quadratic_features(model, num_features):
    """The squared norm of products is the fourth power of the norm of the means over pixels."""
    config = quick_config()
    config.num_features = 64
    images = np.full((6, 28 * 28), 0.5, np.float32)
    data = fcojax.from_rows({"x": images, "y": np.arange(6)}, [3, 3])
    task = emnist.task(config, emnist.Data("MNIST", data, data), model, "l1")
    x = np.asarray(task.problem.train.examples["x"])
    assert x.shape == (6, num_features)
    assert task.problem.init(jax.random.key(0))["kernel"].shape == (num_features, 10)
    if model == "qlr":
        assert (x[0] ** 2).sum() == pytest.approx((196 * 0.25) ** 2, rel=1e-5)
