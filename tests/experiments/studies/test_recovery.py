import jax
import numpy as np
import pytest

from experiments.report.summary import Criterion
from tests.experiments.studies.quick_sweeps import quick_config


def rows_of(name, errors, client_lr):
    return [
        {"algorithm": name, "client_lr": client_lr, "seed": seed, "round": 20 * k}
        | {
            "error": error + 0.01 * seed,
            "validation_loss": error,
            "accuracy": -error,
            "objective": error,
            "status": "",
        }
        for seed in range(3)
        for k, error in enumerate(errors)
    ]


@pytest.mark.parametrize("num_seeds", [2, 3])
def test_claims_compare_rounds_and_ends_at_both_kinds_of_rates(num_seeds):
    sweep, config = quick_config("recovery_lasso")
    config.target_error, config.source_lr = 1.05, {"fed_mid": 0.1, "fed_dual_avg": 0.1}
    curves = {
        "fed_mid": (3, 2, 0.9),
        "fed_dual_avg": (3, 0.9, 0.8),
        "fast_fed_dual_avg": (3, 0.7, 0.6),
        "c_fed_dual_avg": (3, 2, 0.6),
        "mc_fed_dual_avg": (3, 2, 0.7),
    }
    rows = [row for name, errors in curves.items() for row in rows_of(name, errors, 0.2)]
    rows += [row for name in curves for row in rows_of(name, (3, 2, 1.5), 0.1)]
    rows = [row for row in rows if row["seed"] < num_seeds]
    entry = {"best": {"client_lr": 0.2}, "criterion": Criterion("error", "min", 20)._asdict()}
    summary = {"algorithms": dict.fromkeys(curves, entry)}
    claims = sweep.claims(config, rows, summary)
    never = config.num_rounds
    expected = [never - 20, never - 40, 0.9, 0.8, 0, 0, -20, 0.2, 0.1, 0]
    assert [claim.measured for claim in claims] == pytest.approx(expected)
    # Claims that the source does not make are our expectations.
    assert [bool(claim.source) for claim in claims] == 5 * [True] + 5 * [False]
    verdicts = [claim.as_json()["holds"] for claim in claims]
    holds = [True, True, True, True, False, False, False, True, True, False]
    assert verdicts == (holds if num_seeds == 3 else 10 * [None])
    # Without a truth the claims are about losses and accuracies.
    _, of_digits = quick_config("recovery_digits")
    of_digits.source_lr = config.source_lr
    ends = sweep.claims(of_digits, rows, summary)
    assert [claim.measured for claim in ends] == pytest.approx(
        [0.9, 0.8, 0.9, 0.8, 0.2, 0.1, 0.2, 0.1]
    )
    # A rate of only one method is not a common rate.
    more = rows + rows_of("fast_fed_dual_avg", (3, 0.5, 0.1), 0.3)
    more = [row for row in more if row["seed"] < num_seeds]
    assert sweep.claims(config, more, summary) == claims
    # There is no best of common rates if only the baselines ran with both.
    baselines = ("fed_mid", "fed_dual_avg")
    some = [row for row in rows if row["client_lr"] == 0.2 or row["algorithm"] in baselines]
    assert sweep.claims(config, some, summary) == claims[:5]
    assert sweep.claims(of_digits, some, summary) == ends[:4]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recovery_lasso", "recovery_low_rank", "recovery_digits"])
def test_losses_have_no_bias_and_starts_follow_the_source(name):
    sweep, config = quick_config(name)
    problem = sweep.problem(config)
    start = problem.init(jax.random.key(0))
    assert set(start) == {"kernel"}
    deviation = np.std(start["kernel"])
    assert deviation == 0 if name == "recovery_digits" else abs(deviation - 1) < 0.2
    row = jax.tree.map(lambda leaf: leaf[:1], problem.train.examples)
    loss = float(problem.loss({"kernel": 0 * start["kernel"]}, row)[0])
    expected = np.log(10) if name == "recovery_digits" else float(row["y"][0]) ** 2 / 2
    assert loss == pytest.approx(expected, rel=1e-5)
