import numpy as np
import pytest

from experiments.report.rows import column, select
from tests.experiments.studies.quick_studies import draw_figures

pytestmark = pytest.mark.slow


def test_all_claims_hold_on_a_quick_run(found):
    study, *rest = found
    claims = study.claims(*rest)
    assert len(claims) == 10
    assert [claim.text for claim in claims if not claim.holds] == []
    assert [claim.quick for claim in claims] == 6 * [True] + 4 * [False]


def test_the_figures_are_drawn(found, tmp_path):
    assert draw_figures(found, tmp_path) == ["pair.png", "costs.png"]


def test_a_drift_that_does_not_match_converges_to_the_predicted_limit(found):
    _, _, rows, _ = found
    distances = column(
        select(rows, part="gap", start="drift not the mean dual", solver="gd"), "from_predicted"
    )
    assert distances[0] > 0.1 and distances[-1] < 1e-10
    assert (np.diff(distances[:20]) < 0).all()


def test_full_participation_is_deterministic(found):
    _, _, rows, _ = found
    for eta in (1.0, 0.2):
        [rounds] = set(
            column(select(rows, part="participation", prox_step=eta, rate=1.0), "rounds")
        )
        assert 5 < rounds < 500
