import jax
import pytest

from experiments.report.summary import Criterion
from tests.experiments.studies.fabricated import sweep_of
from tests.experiments.studies.quick_sweeps import quick_config

LEAST = Criterion("error_fro", "min", 20)


def estimated(error, rank, at_rank, objective):
    return lambda seed, at: {
        "error_fro": error + 1e-3 * seed,
        "rank": rank if at >= at_rank else 30,
        "objective": objective + (10.0 if at < at_rank else 0.0),
    }


def found(rank=16):
    sweep, config = quick_config("low_rank")
    config.true_rank, config.num_rounds = 16, 200
    config.criterion_rounds, config.eval_every = 20, 10
    rows, summary = sweep_of(
        {
            "fed_dual_avg": {(0.01, 1.0): estimated(0.5, rank, 60, 1.0)},
            "fed_dual_avg_osp": {(0.01, 1.0): estimated(1.7, 15, 20, 2.0)},
            "fed_mid": {(0.01, 1.0): estimated(0.9, 20, 90, 1.02)},
            "fed_mid_osp": {(0.01, 1.0): estimated(0.6, 16, 80, 1.3)},
        },
        LEAST,
        range(0, 201, 10),
    )
    summary["optimum"] = {"0.2": {"objective": 1.0}}
    return [(claim.measured, claim.holds) for claim in sweep.claims(config, rows, summary)]


def test_rounds_to_the_rank_and_to_the_optimum_are_counted_for_each_seed():
    rank, mid_rank, mid_loss, osp_rank, osp_loss, low, worse = found()
    assert rank == (60, True)
    # A method that never reaches it counts with the last round.
    assert mid_rank == (140, True) and mid_loss == (30, True)
    assert osp_rank == (20, True) and osp_loss == (140, True)
    assert low == (-1, True) and worse[1] and worse[0] == pytest.approx(3.4, rel=0.01)


def test_a_rank_that_is_never_reached_refutes_the_claims_on_it():
    rank, mid_rank, *_ = found(rank=17)
    assert rank == (200, False) and mid_rank == (0, False)  # a tie is not slower


def test_the_bias_is_not_penalised():
    sweep, config = quick_config("low_rank")
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    params = problem.init(jax.random.key(0)) | {"bias": 3.0}
    moved = penalty.prox(params, 1.0, 100.0)
    assert moved["bias"] == 3.0
    assert moved["kernel"].shape == (12, 12)
    assert float(abs(moved["kernel"]).max()) == pytest.approx(0.0)
