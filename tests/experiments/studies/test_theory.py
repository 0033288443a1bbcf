import numpy as np
import pytest

from experiments.report.rows import column, select
from tests.experiments.studies.quick_studies import quick_study

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return quick_study("theory", tmp_path_factory.mktemp("theory"))


def test_all_claims_hold_on_a_quick_run(found):
    study, *rest = found
    found = study.claims(*rest)
    assert len(found) == 17
    # FedMiD stalls above the bound only after the rounds of a full run.
    late = ("the mean of FedMiD's models", "the model of FedDualAvg's mean dual")
    wrong = [claim.text for claim in found if not claim.holds]
    assert [text for text in wrong if not any(words in text for words in late)] == []
    assert not any(claim.quick for claim in found)


def test_the_figures_are_drawn(found, tmp_path):
    study, *rest = found
    drawn = study.figures(*rest, tmp_path)
    assert [path.name for path in drawn] == [
        "bounds.png",
        "curse.png",
        "sparsity.png",
        "small_steps.png",
    ]
    assert all(path.stat().st_size > 20_000 for path in drawn)


def test_duals_are_apart_in_proportion_to_the_rate(found):
    """Their distance is, to first order; its square is what is measured."""
    _, config, rows, _ = found
    for setting in ("l1", "ball"):
        seen = select(rows, part="bound", setting=setting, round=config.num_rounds)
        apart = {row["rate_share"]: row["discrepancy"] for row in seen}
        assert apart[0.1] / apart[0.01] == pytest.approx(100, rel=0.2)


def test_no_model_leaves_the_ball(found):
    _, _, rows, _ = found
    norms = column(select(rows, part="curse"), "norm")
    assert norms.max() < 1 + 1e-12 and np.ptp(norms) > 0.1
