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
            "fed_dual_avg": {
                (0.01, 1.0): estimated(0.5, rank, 60, 1.0),
                (0.1, 1.0): estimated(0.6, rank, 70, 1.0),
                (0.1, 0.01): estimated(0.7, rank, 70, 1.1),
            },
            "fed_dual_avg_osp": {(0.01, 1.0): estimated(1.7, 15, 20, 2.0)},
            "fed_mid": {(0.01, 1.0): estimated(0.9, 20, 90, 1.015)},
            "fed_mid_osp": {
                (0.01, 1.0): estimated(0.6, 16, 80, 1.3),
                (0.01, 10.0): estimated(0.8, 16, 80, 1.0),
                (0.1, 1.0): estimated(0.7, 16, 60, 1.0),
            },
        },
        LEAST,
        range(0, 201, 10),
    )
    summary["optimum"] = {"0.2": {"objective": 1.0}}
    return {
        claim.text: (claim.measured, claim.holds, claim.source)
        for claim in sweep.claims(config, rows, summary)
    }


def said(claims, *words):
    [entry] = [entry for text, entry in claims.items() if all(word in text for word in words)]
    return entry[:2]


def test_rounds_to_the_rank_and_to_the_optimum_are_counted_for_each_seed():
    claims = found()
    assert said(claims, "FedDualAvg has rank 16") == (60, True)
    # A method that never reaches it counts as reaching it in the last round.
    assert said(claims, "FedMiD is slower in rank") == (140, True)
    assert said(claims, "FedMiD-OSP is slower in rank") == (20, True)
    for level, rounds in (("1.05", 30), ("1.02", 30), ("1.01", 140)):  # all levels are shown
        words = f"is slower in loss (further rounds to {level} of the optimum)"
        assert claims[f"FedMiD {words}"][0] == rounds
        assert claims[f"FedMiD-OSP {words}"][0] == 140
    assert said(claims, "ends at a low rank") == (-1, True)
    worse, holds = said(claims, "far less accurate")
    assert holds and worse == pytest.approx(3.4, rel=0.01)


def test_methods_are_compared_at_equal_products_of_rates_as_an_expectation():
    claims = {text: entry for text, entry in found().items() if "product of rates" in text}
    assert not any(source for *_, source in claims.values())
    # At 0.1 FedMiD-OSP is at its better point, (0.1, 1); no method is near the optimum at 0.001.
    assert [entry[0] for entry in claims.values()] == [140, 140, -10]
    assert [float(text.split()[6]) for text in claims] == [0.01, 0.01, 0.1]


def test_a_rank_that_is_never_reached_refutes_the_claims_on_it():
    claims = found(rank=17)
    assert said(claims, "FedDualAvg has rank 16") == (200, False)
    assert said(claims, "FedMiD is slower in rank") == (0, False)  # a tie is not slower


def test_the_bias_is_not_penalised():
    sweep, config = quick_config("low_rank")
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    params = problem.init(jax.random.key(0)) | {"bias": 3.0}
    moved = penalty.prox(params, 1.0, 100.0)
    assert moved["bias"] == 3.0
    assert moved["kernel"].shape == (12, 12)
    assert float(abs(moved["kernel"]).max()) == pytest.approx(0.0)
