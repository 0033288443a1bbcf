"""The study of private uploads without noise, which needs no accounting."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.studies.private import claims
from experiments.studies.private.rows import METHODS, _plan
from fcojax.privacy import multiplier_of
from tests.experiments.studies.quick_studies import draw_figures, quick_study


@pytest.mark.slow
def test_each_method_has_as_many_runs_and_the_most_accurate_is_shown(tmp_path):
    found = quick_study("private", tmp_path)
    _, config, rows, summary = found
    assert len(rows) == len(METHODS) * len(config.client_lr) * len(config.seeds)
    for row in rows:
        assert row["epsilon"] is None  # infinite
        others = [one for one in rows if (one["seed"], one["part"]) == (row["seed"], row["part"])]
        top = max(one["accuracy"] for one in others)
        assert not row["best"] or row["accuracy"] == top
    assert [entry["method"] for entry in summary["best"]] == [m.text for m in METHODS.values()]
    assert claims.claims(config, rows, summary) == []
    assert draw_figures(found, tmp_path) == ["sparsity.png"]


def test_the_noise_is_that_of_the_hyperparameters():
    plan = _plan(5, 1.0)
    assert plan.aggregator.noisy

    class Point:
        noise, client_lr = 2.5, 0.1

    assert multiplier_of(plan, Point) == 2.5
    clipped = plan.aggregator.term(Point, [jnp.array([3.0, 4.0])], ()).value
    np.testing.assert_allclose(jnp.linalg.norm(clipped[0]), 0.5, rtol=1e-6)
