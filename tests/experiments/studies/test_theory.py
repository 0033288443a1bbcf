import numpy as np
import pytest

from experiments.report.rows import column, select


@pytest.mark.slow
def test_the_distance_of_duals_is_proportional_to_the_rate(found):
    """The distance is proportional to first order; the rows contain its square."""
    _, config, rows, _ = found
    for setting in ("l1", "sampled", "p_norm", "ball", "simplex", "entropy"):
        own = select(rows, part="bound", setting=setting, round=config.num_rounds)
        squares = {row["rate_share"]: row["discrepancy"] for row in own}
        assert squares[0.1] / squares[0.01] == pytest.approx(100, rel=0.2)


@pytest.mark.slow
def test_no_model_leaves_the_ball(found):
    _, _, rows, _ = found
    norms = column(select(rows, part="curse"), "norm")
    assert norms.max() < 1 + 1e-12 and np.ptp(norms) > 0.1
