import pytest

from configs.kpca import EXPERIMENT, get_config
from tests.experiments.studies.quick_studies import draw_figures

pytestmark = pytest.mark.slow


def test_all_claims_hold_on_a_quick_run(found):
    claims = found[0].claims(*found[1:])
    # Two seeds do not decide the floor of batches; the quick run has one batch size.
    assert len(claims) == 11
    assert len({row["curvature"] for row in found[2] if row["part"] == "floor"}) == 2  # by seed
    assert [claim.text for claim in claims if not claim.holds] == []


@pytest.mark.parametrize(
    "few, many, ratio",
    [
        # Fewer steps end at 1e-4 in round 100, where more steps were in round 80.
        ([1.0, 1e-3, 1e-4], [1.0, 1e-4, 1e-6], 100 / 80),
        # Below the tolerance nothing counts: both reach 1e-5 in round 80.
        ([1.0, 1e-6, 1e-9], [1.0, 1e-7, 1e-12], 1.0),
    ],
)
def test_runs_are_compared_at_the_last_level_that_both_reach(few, many, ratio):
    rows = [{"part": "floor", "split": "synthetic", "grad_norm": 1.0}] + [
        {"part": "steps", "split": "synthetic", "num_steps": steps, "round": at, "grad_norm": norm}
        for steps, norms in ((5, few), (10, many))
        for at, norm in zip((0, 80, 100), norms, strict=True)
    ]
    [claim] = EXPERIMENT.claims(get_config(), rows, {})
    assert claim.text == "more local steps need fewer rounds" and claim.case == "synthetic"
    assert claim.measured == ratio
    assert claim.holds is (ratio >= 1.05)


def test_the_figures_are_drawn(found, tmp_path):
    assert draw_figures(found, tmp_path) == ["methods_synthetic.png", "effects_synthetic.png"]
