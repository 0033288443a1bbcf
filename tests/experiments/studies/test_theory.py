import numpy as np
import pytest

from experiments.report.rows import column, select
from tests.experiments.studies.quick_studies import draw_figures

pytestmark = pytest.mark.long


def test_all_claims_hold_on_a_quick_run(found):
    study, *rest = found
    claims = study.claims(*rest)
    assert len(claims) == 19
    # The averages separate only after the rounds of a full run.
    late = ("the mean of FedMiD's models", "the model of FedDualAvg's mean dual")
    wrong = [claim.text for claim in claims if not claim.holds]
    assert [text for text in wrong if not any(words in text for words in late)] == []
    assert not any(claim.quick for claim in claims)


def test_the_figures_are_drawn(found, tmp_path):
    assert draw_figures(found, tmp_path) == [
        "bounds.png",
        "curse.png",
        "sparsity.png",
        "small_steps.png",
    ]


def test_the_distance_of_duals_is_proportional_to_the_rate(found):
    """The distance is proportional to first order; the rows have its square."""
    _, config, rows, _ = found
    for setting in ("l1", "ball"):
        own = select(rows, part="bound", setting=setting, round=config.num_rounds)
        squares = {row["rate_share"]: row["discrepancy"] for row in own}
        assert squares[0.1] / squares[0.01] == pytest.approx(100, rel=0.2)


def test_no_model_leaves_the_ball(found):
    _, _, rows, _ = found
    norms = column(select(rows, part="curse"), "norm")
    assert norms.max() < 1 + 1e-12 and np.ptp(norms) > 0.1
