import numpy as np
import pytest

from experiments.report.rows import column, select
from tests.experiments.studies.quick_studies import quick_study

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return quick_study("fedpd_feddyn", tmp_path_factory.mktemp("fedpd_feddyn"))


def test_all_claims_hold_on_a_quick_run(found):
    study, *rest = found
    found = study.claims(*rest)
    assert len(found) == 10
    assert [claim.text for claim in found if not claim.holds] == []
    assert [claim.quick for claim in found] == 6 * [True] + 4 * [False]


def test_the_figures_are_drawn(found, tmp_path):
    study, *rest = found
    drawn = study.figures(*rest, tmp_path)
    assert [path.name for path in drawn] == ["pair.png", "costs.png"]
    assert all(path.stat().st_size > 20_000 for path in drawn)


def test_a_drift_that_does_not_match_is_led_to_its_limit_and_does_not_start_there(found):
    _, _, rows, _ = found
    away = column(
        select(rows, part="gap", start="drift not the mean dual", solver="gd"), "from_predicted"
    )
    assert away[0] > 0.1 and away[-1] < 1e-10
    assert (np.diff(away[:20]) < 0).all()


def test_with_everyone_luck_plays_no_part(found):
    _, _, rows, _ = found
    for eta in (1.0, 0.2):
        [rounds] = set(
            column(select(rows, part="participation", prox_step=eta, rate=1.0), "rounds")
        )
        assert 5 < rounds < 500
