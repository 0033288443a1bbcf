import pytest

from experiments.report.rows import select
from tests.experiments.studies.quick_studies import quick_study

pytestmark = pytest.mark.long


def test_averaging_in_the_primal_is_dense_and_in_the_dual_is_not(tmp_path):
    study, config, rows, summary = quick_study("saddle", tmp_path)
    for num_steps in (1, 10):
        entries = {entry["method"]: entry for entry in summary[f"vectors, K = {num_steps}"]}
        dual, primal = entries["FeDualEx"], entries["FedMiP, client prox only"]
        assert dual["density"] < 0.8 < 0.95 < primal["density"]
        assert max(dual["gap"], primal["gap"]) < 0.02
        points = select(rows, part="point", method="fe_dual_ex", num_steps=num_steps)
        assert [row["gap"] for row in points if row["best"]] == [min(r["gap"] for r in points)]
    assert len(study.claims(config, rows, summary)) == 10
    drawn = study.figures(config, rows, summary, tmp_path)
    assert [path.name for path in drawn] == ["vectors.png"]
