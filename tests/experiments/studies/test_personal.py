"""The study of personalised methods: equal budgets, and claims by client."""

from typing import Any

import numpy as np
import pytest

from configs import personal
from experiments.studies.personal import claims
from experiments.studies.personal.rows import lasso, summarise


@pytest.mark.slow
def test_a_quick_study_has_a_row_for_each_seed_and_method(found):
    _, config, rows, summary = found
    assert len(rows) == len(config.seeds) * len(config.methods)
    assert all(len(row["loss"]) == config.lasso.num_clients for row in rows)
    assert [entry["method"] for entry in summary["methods"]] == list(config.methods)


def test_all_methods_have_as_many_points():
    config: Any = personal.get_config()
    assert len(config.strengths) == len(config.few_strengths) * len(config.pulls)


def test_four_fifths_of_a_client_s_features_are_those_of_all():
    config: Any = personal.get_config()
    truth = lasso(config, seed=0).truth
    assert truth is not None
    assert (np.count_nonzero(truth, axis=1) == 10).all()
    assert np.count_nonzero((truth != 0).all(axis=0)) == 8


def test_gains_are_shares_of_clients_and_claims_are_means_over_them():
    config: Any = personal.get_config()
    config.tasks = ("digits",)
    accuracies = {"global": [0.5, 0.7], "local": [0.6, 0.5], "ditto": [0.7, 0.9]}
    rows: Any = [
        {
            "task": "digits",
            "method": name,
            "seed": seed,
            "accuracy": (np.array(accuracies.get(name, [0.6, 0.6])) + seed / 99).tolist(),
        }
        for name in config.methods
        for seed in config.seeds
    ]
    table = {entry["method"]: entry for entry in summarise(config, rows)["methods"]}
    assert table["ditto"]["gain over global"] == 1
    assert table["local"]["gain over global"] == 0.5
    found = claims(config, rows, {})
    np.testing.assert_allclose([one.measured for one in found], [0.2, 0.0, 0.25, 0.05], atol=1e-12)
    assert [one.holds for one in found] == [True, False, True, True]
