import jax
import numpy as np
import pytest

from experiments.report.summary import Criterion
from tests.experiments.studies.fabricated import sweep_of
from tests.experiments.studies.quick_sweeps import quick_config

LEAST = Criterion("error_fro", "min", 20)


def estimated(error, rank, at_rank, objective):
    """Curves of draws whose optima are one and a hundredth of the seed."""
    return lambda seed, at: {
        "error_fro": error + 1e-3 * seed,
        "rank": rank if at >= at_rank else 30,
        "objective": objective + 0.01 * seed + (10.0 if at < at_rank else 0.0),
        "suboptimality": objective - 1.0 + (10.0 if at < at_rank else 0.0),
    }


OTHERS = {
    "fed_dual_avg_osp": {(0.01, 1.0): estimated(1.7, 15, 20, 2.0)},
    "fed_mid": {(0.01, 1.0): estimated(0.9, 20, 90, 1.015)},
    "fed_mid_osp": {
        (0.01, 1.0): estimated(0.6, 16, 80, 1.3),
        (0.01, 10.0): estimated(0.8, 16, 80, 1.0),
        (0.1, 1.0): estimated(0.7, 16, 60, 1.0),
    },
}


def found(rank=16, also=lambda seed, at: {}, others=OTHERS):
    """Return the claims; ``also`` changes what FedDualAvg is from round 60 on."""
    ours = estimated(0.5, rank, 60, 1.0)
    sweep, config = quick_config("low_rank")
    config.true_rank, config.num_rounds = 16, 200
    config.criterion_rounds, config.eval_every = 20, 10
    own = {
        (0.01, 1.0): lambda seed, at: ours(seed, at) | (also(seed, at) if at >= 60 else {}),
        (0.1, 1.0): estimated(0.6, rank, 70, 1.0),
        (0.1, 0.01): estimated(0.7, rank, 70, 1.1),
    }
    rows, summary = sweep_of({"fed_dual_avg": own} | others, LEAST, range(0, 201, 10))
    return {
        (own.text, "stays" if "stays" in own.measure else own.part): own
        for own in sweep.claims(config, rows, summary)
    }


def excess(before, drop, after):
    """The mean logarithm over 200 rounds of a curve that drops within ten rounds, by trapezoids."""
    logs = np.log10([before, max(after, 1e-5)])
    return (np.array([drop - 5, 205 - drop]) @ logs) / 200


def test_claims_are_about_first_rounds_ends_and_whole_curves():
    ours, late = excess(10.0, 60, 0.0), excess(10.0, 70, 0.0)
    slower, equal = "FedMiD and FedMiD-OSP are slower in ", "at equal products of both rates "
    primal = excess(10.015, 90, 0.015) - ours
    # At a product of 0.1 FedMiD-OSP is at its better point, (0.1, 1).
    osp = [excess(10.3, 80, 0.3) - ours, ours - late]
    expected = {
        ("FedDualAvg has exactly the true rank in fewer than 100 rounds", ""): 60,
        ("FedDualAvg has exactly the true rank in fewer than 100 rounds", "stays"): 60,
        # A method that never reaches it counts as reaching it in the last round.
        (f"{slower}rank", "FedMiD"): 140,
        (f"{slower}rank", "FedMiD-OSP"): 20,
        (f"{slower}loss", "FedMiD"): primal,
        (f"{slower}loss", "FedMiD-OSP"): osp[0],
        ("FedDualAvg-OSP ends at a low rank", ""): -1,
        ("FedDualAvg-OSP is far less accurate", ""): 3.4,
        (f"{equal}{slower}loss", "FedMiD"): primal,
        (f"{equal}{slower}loss", "FedMiD-OSP"): np.mean(osp),
    }
    claims = found()
    assert {key: own.measured for key, own in claims.items()} == pytest.approx(expected, rel=0.01)
    assert [key[0] for key, own in claims.items() if not own.source] == 2 * [f"{equal}{slower}loss"]
    # A rank that is never reached refutes the claims on it; a tie is not slower.
    never = [
        own for own in found(rank=17).values() if "rank" in own.text and "ends" not in own.text
    ]
    assert [(own.measured, own.holds) for own in never] == [(n, False) for n in (200, 200, 0, -120)]
    # A rank that is left again is not yet the one that stays; the last seed decides.
    left = found(also=lambda seed, at: {"rank": 17 if 60 < at < 100 + 10 * seed else 16})
    first, stays = (own for (text, _), own in left.items() if "exactly" in text)
    assert (first.measured, first.holds) == (60, True)
    assert (stays.measured, stays.holds) == (120, False)
    # A run with FedAvg judges nothing else again; the last row is that of the rank.
    [beside] = found(
        others={"fed_avg_subgradient": {(0.01, 1.0): estimated(1, 32, 60, 1)}}
    ).values()
    assert "subgradients" in beside.text and (beside.measured, beside.holds) == (16, True)


def test_the_bias_is_not_penalised():
    sweep, config = quick_config("low_rank")
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    params = problem.init(jax.random.key(0)) | {"bias": 3.0}
    moved = penalty.prox(params, 1.0, 100.0)
    assert moved["bias"] == 3.0
    assert moved["kernel"].shape == (12, 12)
    assert float(abs(moved["kernel"]).max()) == pytest.approx(0.0)
