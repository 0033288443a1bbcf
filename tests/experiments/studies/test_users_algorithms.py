"""Claims about the methods of a source do not depend on other methods in the same run."""

import pytest

from experiments.report.summary import Criterion, summarise
from tests.experiments.studies.fabricated import sweep_of
from tests.experiments.studies.quick_sweeps import quick_config

CONFIGS = ("lasso", "fmri", "low_rank", "matrix_completion", "recovery_lasso", "recovery_digits")
SOURCES = "fed_dual_avg fed_dual_avg_osp fed_mid fed_mid_osp fed_avg_subgradient centralized local"
SOURCES += " fast_fed_dual_avg c_fed_dual_avg mc_fed_dual_avg"
MEASURES = "f1 density accuracy objective suboptimality rank error error_fro validation_loss rmse"
CRITERION = Criterion("objective", "min", 20)


def seen(level):
    """Return all measures that claims use, with this value."""
    return lambda seed, at: dict.fromkeys(MEASURES.split(), level + 0.01 * seed + 0.001 * at)


@pytest.mark.parametrize("name", CONFIGS)
def test_an_algorithm_without_a_server_rate_changes_no_claim(name):
    sweep, config = quick_config(name)
    rows, summary = sweep_of(
        {
            label: {(0.1, 1.0): seen(0.1 * (i + 1)), (0.2, 1.0): seen(0.2 * (i + 1))}
            for i, label in enumerate(SOURCES.split())
        },
        CRITERION,
        (0, 20, 40),
    )
    alone = sweep.claims(config, rows, summary)
    assert alone
    # Better than all others in every measure to be minimised.
    point = {"algorithm": "mine", "step": 0.3, "status": "improving"}
    theirs = [
        point | {"seed": seed, "round": at} | seen(0.001)(seed, at)
        for seed in range(3)
        for at in (0, 20, 40)
    ]
    summary["algorithms"]["mine"] = summarise(theirs, ("step",), CRITERION)
    beside = sweep.claims(config, rows + theirs, summary)
    assert [claim.as_json() for claim in beside] == [claim.as_json() for claim in alone]
