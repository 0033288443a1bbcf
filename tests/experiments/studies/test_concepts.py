"""The study of sparse heads: its nonzeros and accuracies, with few classes."""

import numpy as np
import pytest

from configs import concepts
from experiments.report.claims import mcnemar
from experiments.studies.concepts.claims import claims
from experiments.studies.concepts.problem import head
from experiments.studies.concepts.rows import accuracies, largest
from tests.experiments.studies.quick_studies import draw_figures, quick_study


@pytest.mark.slow
def test_a_quick_study_has_models_at_every_sparsity(tmp_path):
    found = quick_study("concepts", tmp_path)
    _, config, rows, summary = found
    kept = [row for row in rows if row.get("method") == "fed_avg"]
    assert sorted({row["nonzeros"] for row in kept}) == [2, 5, 40]
    assert len(kept) == 3 * 3 * 3  # rates, seeds, numbers kept
    for name in config.methods:
        curve = [accuracies(config, rows, name, most).mean() for most in config.kept]
        assert curve == sorted(curve) and curve[-1] > 0.5  # of five classes
    assert summary["best"][0]["nonzeros per class, at most"] == 2
    assert claims(config, rows, summary) == []  # 50 nonzeros are not among the config's numbers
    assert draw_figures(found, tmp_path) == ["accuracy.png"]


def test_claims_are_differences_by_seed():
    config = concepts.get_config()
    rows = [
        {"part": "model", "method": name, "seed": seed, "nonzeros": k, "accuracy": value + seed / 9}
        for name, value in zip(config.methods, (0.4, 0.3, 0.5, 0.2), strict=True)
        for k in (4.5, 49.0)
        for seed in config.seeds
    ]
    rows += [
        {"part": "model", "method": "fed_avg", "seed": seed, "nonzeros": 512.0, "accuracy": 0.1}
        for seed in config.seeds
    ]
    found = claims(config, rows, {})
    np.testing.assert_allclose([one.measured for one in found], [0.2, 0.2, 0.3 + 1 / 9, -0.1, 0.1])
    assert [one.holds for one in found] == [True, True, True, False, True]


def test_a_lead_must_hold_over_the_validation_rows_as_well():
    """All seeds have a lead of a tenth: one row of ten, or ten of a hundred."""
    config = concepts.get_config()
    for size, holds in ((10, False), (100, True)):
        right = {name: np.zeros(size, bool) for name in config.methods}
        right["fed_dual_avg"][: size // 10] = True
        rows = [
            {
                "part": "model",
                "method": name,
                "seed": seed,
                "nonzeros": k,
                "accuracy": float(right[name].mean()),
                "right": np.packbits(right[name]).tobytes().hex(),
            }
            for name in config.methods
            for k in (4.5, 512.0)
            for seed in config.seeds
        ]
        first = claims(config, rows, {})[0]
        assert first.measured == pytest.approx(0.1) and first.holds is holds
        assert first.examples == mcnemar(right["fed_dual_avg"], right["fed_avg"])


def test_a_class_is_the_presence_of_its_concepts():
    config = concepts.get_config()
    concepts.quick(config)
    problem, validation = head(config)
    assert problem.train.num_clients == 5 and int(problem.train.sizes.sum()) == 300
    means = np.stack([validation["x"][validation["y"] == c].mean(axis=0) for c in range(5)])
    assert np.sum(means > 0.75, axis=1).tolist() == [4] * 5
    assert np.count_nonzero(largest(means, 20)) == 20
