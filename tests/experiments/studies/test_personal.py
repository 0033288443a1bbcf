"""The study of personalised methods: equal budgets, and claims by client."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from experiments.studies.flamby.scores import c_index

from configs import personal
from experiments.studies.personal.claims import claims
from experiments.studies.personal.problem import TASKS, c_indices, lasso
from experiments.studies.personal.rows import study, summarise
from fcojax.problems import cox
from tests.experiments.studies.quick_studies import draw_figures, quick_study


@pytest.mark.slow
def test_a_quick_study_has_a_row_for_each_seed_and_method(tmp_path):
    found: Any = quick_study("personal", tmp_path)
    _, config, rows, summary = found
    assert len(rows) == len(config.seeds) * len(config.methods)
    assert all(len(row["loss"]) == config.lasso.num_clients for row in rows)
    assert [entry["method"] for entry in summary["methods"]] == list(config.methods)
    assert len(claims(config, rows, summary)) == 6
    assert draw_figures(found, tmp_path) == ["clients.png"]


def test_all_methods_have_as_many_points():
    config: Any = personal.get_config()
    budgets = {len(config.strengths)} | {
        len(config.few_strengths) * len(config[name]) for name in ("pulls", "shares", "fusions")
    }
    assert len(budgets) == 1


def test_four_fifths_of_a_client_s_features_are_those_of_all():
    config: Any = personal.get_config()
    truth = lasso(config, seed=0).truth
    assert truth is not None
    assert (np.count_nonzero(truth, axis=1) == 10).all()
    assert np.count_nonzero((truth != 0).all(axis=0)) == 8


def test_gains_are_shares_of_clients_and_claims_are_means_over_them():
    config: Any = personal.get_config()
    config.tasks = ("lasso",)
    losses = {"global": [2.0, 2.0], "local": [1.0, 3.0], "shared support": [1.5, 1.0]}
    rows: Any = [
        {
            "task": "lasso",
            "method": name,
            "seed": seed,
            "loss": (np.array(losses.get(name, [2.5, 2.5])) + seed / 9).tolist(),
            "f1": [0.9 if name == "shared support" else 0.5] * 2,
            "largest f1": [0.8 if name == "shared support" else 0.6] * 2,
        }
        for name in config.methods
        for seed in config.seeds
    ]
    table = {entry["method"]: entry for entry in summarise(config, rows)["methods"]}
    assert table["shared support"]["gain over global"] == 1
    assert table["shared support"]["gain over local"] == 0.5
    assert table["local"]["gain over global"] == 0.5
    found = claims(config, rows, {})
    np.testing.assert_allclose([one.measured for one in found], [0.4, 0.4, 0.2, 0.2, 0.75, 0.75])
    assert all(one.holds for one in found)


def survival(shift: float = 0.0):
    """Return a reader of two drawn regions, whose columns are shifted."""
    rng = np.random.default_rng(0)

    def rows(size):
        x = rng.normal(size=(size, 3))
        time = rng.exponential(np.exp(-2 * x[:, 0]))
        return {"x": x + shift, "time": time, "event": np.arange(size) % 2}

    train, test = [rows(30), rows(20)], [rows(12), rows(8)]
    return {"fed_tcga_brca": lambda folder: SimpleNamespace(train=train, test=test, build=cox)}


def test_a_region_is_scored_at_its_own_model_and_a_shift_of_columns_changes_no_rate():
    config: Any = personal.get_config()
    task, shifted = (TASKS["regions"](config, 0, survival(shift)) for shift in (0.0, 9.0))
    assert shifted.smoothness == pytest.approx(task.smoothness, rel=1e-6)
    kernels = np.array([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])
    found = c_indices(kernels, task.test, c_index)
    assert found[0] > 0.7 and found[1] < 0.3


@pytest.mark.slow
def test_survival_has_a_c_index_for_each_region_and_method():
    config: Any = personal.get_config()
    config.tasks, config.seeds, config.num_rounds = ("regions",), (0,), 5
    config.strengths, config.few_strengths = (0.1,), (0.1,)
    config.pulls, config.shares, config.fusions = (0.1,), (0.6,), (0.1,)
    rows = list(study(config, survival(), c_index))
    assert all(len(row["C-index"]) == 2 and min(row["C-index"]) > 0 for row in rows)
    assert [one.measure for one in claims(config, rows, {})] == ["difference in C-index"] * 3
