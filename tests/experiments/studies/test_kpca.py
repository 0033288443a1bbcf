import pytest

from tests.experiments.studies.quick_studies import draw_figures

pytestmark = pytest.mark.slow


def test_all_claims_hold_on_a_quick_run(found):
    study, *rest = found
    claims = study.claims(*rest)
    # Two seeds do not decide the floor of batches; the quick run has one batch size.
    assert len(claims) == 8
    assert [claim.text for claim in claims if not claim.holds] == []


def test_averaging_stalls_at_the_predicted_floor(found):
    """The prediction is of first order in the local rate; 0.2 over the curvature is not small."""
    _, _, rows, summary = found
    (floor,) = (row["grad_norm"] for row in rows if row["part"] == "floor")
    reached = {entry["algorithm"]: entry["grad_norm"] for entry in summary["methods"]}
    assert abs(reached["r_fed_avg"] / floor - 1) < 0.1


def test_variance_reduction_sends_twice_as_much_as_averaging(found):
    _, _, rows, _ = found
    sent = {
        row["algorithm"]: row["floats_up"]
        for row in rows
        if row["part"] == "methods" and row["round"] == 60
    }
    assert sent["r_fed_svrg"] == 2 * sent["r_fed_avg"] == 2 * 60 * 30 * 5
    assert sent["fed_manifold"] == sent["r_fed_avg"] + 60  # one more for the number of steps


def test_the_figures_are_drawn(found, tmp_path):
    assert draw_figures(found, tmp_path) == ["methods_synthetic.png", "effects_synthetic.png"]
