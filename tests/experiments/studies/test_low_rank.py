import jax
import pytest

from tests.experiments.studies.quick_sweeps import quick_config


def test_the_round_of_recovery_is_that_of_the_slowest_seed():
    sweep, config = quick_config("low_rank")
    best = {"client_lr": 0.01, "server_lr": 1.0, "penalty_scale": 0.1}
    ranks = {0: (9, 6, 7), 1: (9, 9, 6)}
    rows = [
        {"algorithm": "fed_dual_avg", **best, "seed": seed, "round": 10 * look, "rank": rank}
        for seed, seen in ranks.items()
        for look, rank in enumerate(seen)
    ]
    summary = {"algorithms": {"fed_dual_avg": {"best": best}}}
    assert [claim.measured for claim in sweep.claims(config, rows, summary)] == [20, 20]
    config.true_rank = 5
    claims = sweep.claims(config, rows, summary)
    assert not any(claim.holds for claim in claims)
    assert sweep.claims(config, rows, {"algorithms": {}}) == []


def test_the_penalty_leaves_the_bias_alone():
    sweep, config = quick_config("low_rank")
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    params = problem.init(jax.random.key(0)) | {"bias": 3.0}
    moved = penalty.prox(params, 1.0, 100.0)
    assert moved["bias"] == 3.0
    assert moved["kernel"].shape == (12, 12)
    assert float(abs(moved["kernel"]).max()) == pytest.approx(0.0)
