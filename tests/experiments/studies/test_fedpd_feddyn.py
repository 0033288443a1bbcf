import numpy as np
import pytest

from experiments.report.rows import column, select

pytestmark = pytest.mark.slow


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
