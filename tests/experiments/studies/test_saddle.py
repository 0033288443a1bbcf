import pytest

from experiments.report.rows import select
from tests.experiments.studies.quick_studies import quick_study

pytestmark = pytest.mark.long


def test_averaging_in_the_primal_is_dense_and_in_the_dual_is_not(tmp_path):
    study, config, rows, summary = quick_study("saddle", tmp_path)
    for num_steps in (1, 10):
        entries = {entry["method"]: entry for entry in summary[f"vectors, K = {num_steps}"]}
        # Three rates were tried: those at an end have a star.
        starred = {row["client rate"] for row in summary["best"] if row["K"] == num_steps}
        assert starred <= {"0.1*", "0.03", "0.01*"}
        dual, primal = entries["FeDualEx"], entries["FedMiP, client prox only"]
        assert dual["density"] < 0.8 < 0.95 < primal["density"]
        assert max(dual["gap"], primal["gap"]) < 0.02
        points = select(rows, part="point", method="fe_dual_ex", num_steps=num_steps)
        assert [row["gap"] for row in points if row["best"]] == [min(r["gap"] for r in points)]
    claims = study.claims(config, rows, summary)
    assert len(claims) == 10
    assert {claim.as_json()["open"] for claim in claims} == {"not decided"}  # by one seed
    drawn = study.figures(config, rows, summary, tmp_path)
    assert [path.name for path in drawn] == ["vectors.png"]
