"""Quick runs of the studies: the claims that they decide hold, and the figures are drawn."""

import pytest

from tests.experiments.studies.quick_studies import draw_figures, quick_study

pytestmark = pytest.mark.slow

# The claims of each study, how many of them a quick run leaves open, and its figures.
STUDIES = {
    "compare": (8, 3, "limits.png"),
    "compress": (5, 5, "curves.png"),
    "compress_network": (2, 2, "curves.png"),
    "fed_gd": (12, 4, "limits.png rounds.png bound.png links.png"),
    "fedpd_feddyn": (11, 4, "pair.png costs.png rate.png"),
    "personal": (0, 0, "clients.png"),
    "saddle": (10, 10, "vectors.png"),
    "theory": (58, 58, "bounds.png data.png curse.png terms.png sparsity.png small_steps.png"),
}
# Claims that only the full run decides, and that a quick run contradicts: the averages differ only
# after its rounds, and on the ball averaging models costs more than local steps save.
LATE = {
    "theory": ("averaging", "at small steps FedMiD ends", "the drift grows"),
    "fed_gd": ("whatever E", "Theorem 1"),
    "saddle": ("",),  # one seed
    "compress_network": ("",),
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_quick_run_decides_its_claims_and_draws_its_figures(name, tmp_path):
    found, (number, left_open, figures) = quick_study(name), STUDIES[name]
    study, *rest = found
    claims = study.claims(*rest)
    verdicts = [claim.as_json(quick=True)["holds"] for claim in claims]
    assert len(claims) == number and verdicts.count(None) == left_open and False not in verdicts
    late = LATE.get(name, ())
    wrong = [claim.text for claim in claims if not claim.holds]
    assert [text for text in wrong if not text.startswith(late or ("-",))] == []
    assert draw_figures(found, tmp_path) == figures.split()
