import jax
import numpy as np
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
        f"{claim.text}: {claim.part}": (claim.measured, claim.holds, claim.source)
        for claim in sweep.claims(config, rows, summary)
    }


def said(claims, *words):
    [entry] = [entry for text, entry in claims.items() if all(word in text for word in words)]
    return entry[:2]


def test_rounds_to_the_rank_are_counted_for_each_seed():
    claims = found()
    assert said(claims, "has exactly the true rank") == (60, True)
    # A method that never reaches it counts as reaching it in the last round.
    assert claims["FedMiD and FedMiD-OSP are slower in rank: FedMiD"][:2] == (140, True)
    assert claims["FedMiD and FedMiD-OSP are slower in rank: FedMiD-OSP"][:2] == (20, True)
    assert said(claims, "ends at a low rank") == (-1, True)
    worse, holds = said(claims, "far less accurate")
    assert holds and worse == pytest.approx(3.4, rel=0.01)


def excess(before, drop, after):
    """The mean logarithm over 200 rounds of a curve that drops within ten rounds, by trapezoids."""
    logs = np.log10([before, max(after, 1e-5)])
    return (np.array([drop - 5, 205 - drop]) @ logs) / 200


def test_slower_in_loss_is_one_number_of_the_whole_curve():
    claims = found()
    ours = excess(10.0, 60, 0.0)
    for name, theirs in (
        ("FedMiD", excess(10.015, 90, 0.015)),
        ("FedMiD-OSP", excess(10.3, 80, 0.3)),
    ):
        above, holds, _ = claims[f"FedMiD and FedMiD-OSP are slower in loss: {name}"]
        assert holds and above == pytest.approx(theirs - ours, rel=1e-3)


def test_methods_are_compared_at_equal_products_of_rates_as_an_expectation():
    claims = {text: entry for text, entry in found().items() if "equal products" in text}
    assert not any(source for *_, source in claims.values())
    # At 0.1 FedMiD-OSP is at its better point, (0.1, 1).
    at = {0.01: (60, 10.0, 0.0), 0.1: (70, 10.0, 0.0)}
    ours = {product: excess(start, drop, end) for product, (drop, start, end) in at.items()}
    osp = [excess(10.3, 80, 0.3) - ours[0.01], excess(10.0, 60, 0.0) - ours[0.1]]
    primal = [excess(10.015, 90, 0.015) - ours[0.01]]
    assert [entry[0] for entry in claims.values()] == pytest.approx(
        [np.mean(primal), np.mean(osp)], rel=1e-3
    )


def test_a_rank_that_is_never_reached_refutes_the_claims_on_it():
    claims = found(rank=17)
    assert said(claims, "has exactly the true rank") == (200, False)
    assert claims["FedMiD and FedMiD-OSP are slower in rank: FedMiD"][:2] == (
        0,
        False,
    )  # a tie is not slower


def test_the_bias_is_not_penalised():
    sweep, config = quick_config("low_rank")
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    params = problem.init(jax.random.key(0)) | {"bias": 3.0}
    moved = penalty.prox(params, 1.0, 100.0)
    assert moved["bias"] == 3.0
    assert moved["kernel"].shape == (12, 12)
    assert float(abs(moved["kernel"]).max()) == pytest.approx(0.0)
