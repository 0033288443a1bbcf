import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from configs.compare import get_config
from experiments.report.rows import select
from experiments.studies.compare import rows
from experiments.studies.compare.rows import decreasing, lasso, points, smoothed
from fcojax.transforms import l1

pytestmark = pytest.mark.slow


def test_a_method_may_have_its_own_number_of_rounds_to_its_limit(monkeypatch):
    config, seen = get_config(), {}

    def run(config, task, name, factors, num_rounds, eval_every):
        seen[name] = num_rounds, eval_every
        return None, {"distance": np.zeros((1, 1, 10)), "nonzeros": np.zeros((1, 1, 10))}

    task, _ = lasso(config, "own")
    monkeypatch.setattr(rows, "run", run)
    for name in ("mime", "fed_mid"):
        list(rows.limits(config, task, name))
    assert seen == {"mime": (12_000, 1_200), "fed_mid": (6_000, 600)}


def test_steps_are_multiples_of_the_safe_step_of_a_round():
    config = get_config()
    task, facts = lasso(config, "own")
    whole = [points(config, task, name, [1.0, 2.0]) for name in ("prox_gd", "composite_fl")]
    one, many = (float(grid.client_lr.min()) for grid in whole)
    assert one == pytest.approx(1 / task.smoothness) == pytest.approx(10 * many)
    split = points(config, task, "fed_dr", [1.0, 2.0])
    assert split.prox_step.tolist() == pytest.approx([one, 2 * one])
    assert split.relaxation.tolist() == [1.0, 1.0]
    assert points(config, task, "fast", [1.0]).strong_convexity == facts["strong_convexity"]


def test_floats_are_two_models_a_client_and_round_and_scalars(found):
    """FedDualAvg sends a dual point and a time up and down; FedMiD's server sends no time."""
    _, config, rows, _ = found
    extra = {"prox_gd": 1, "fed_dual_avg": 2, "fed_pd": 1 / 8}
    for name, scalars in extra.items():
        for row in select(rows, part="reached", method=name):
            if row["rounds"] is not None:
                floats = row["floats_up"] + row["floats_down"]
                a_round = config.num_clients * (2 * config.dim + scalars)
                assert floats == pytest.approx(row["rounds"] * a_round)


@pytest.mark.parametrize(("smoothing", "limit"), [(1.0, 0.25), (decreasing(1.0, 1.0, 400), 0.0)])
def test_smoothing_ends_at_the_minimiser_of_the_smoothed_problem(smoothing, limit):
    """Of (x - 1/2)^2 / 2 + |x|: x - 1/2 + x / mu = 0 where |x| <= mu; with mu to 0 it is 0."""
    algorithm = smoothed(lambda x, rows: (x - rows["a"]) ** 2 / 2, l1())
    hparams = algorithm.hparams_type(client_lr=0.002, penalty_scale=1.0, smoothing=smoothing)
    data = fcojax.from_clients([{"a": np.array([0.2])}, {"a": np.array([0.8])}])
    plan = fcojax.local_steps(10)
    x, _ = fcojax.run(
        algorithm, hparams, jnp.array(1.0), data, jax.random.key(0), plan, num_rounds=400
    )
    assert float(x) == pytest.approx(limit, abs=3e-3)
    assert x != 0
