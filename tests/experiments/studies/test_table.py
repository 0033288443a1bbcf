"""A table of one's own: the command finds the config, and strengths are shares of the largest."""

import jax
import numpy as np
import pytest
from experiments.studies.select import table

from experiments.config import config_file
from experiments.config.settings import resolve
from fcojax import __main__ as command
from fcojax.reference import optimum


@pytest.fixture
def config(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal((60.0, 1.0), (10.0, 0.3), (90, 2))
    died = rng.random(90) < 1 / (1 + np.exp(-(x[:, 0] - 60) / 5))
    lines = [
        f"{a},{b},{'ABC'[i % 3]},{d:d}" for i, ((a, b), d) in enumerate(zip(x, died, strict=True))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["age,dose,hospital,died", *lines]))
    made = config_file.load(str(command.configs()["table"])).get_config()
    made.update(data=str(tmp_path / "t.csv"), target="died", client="hospital")
    return made


def test_a_table_is_read_by_client_with_features_scaled(config):
    train = table.problem(config).train
    assert train.num_clients == 3 and train.examples["x"].shape == (90, 2)
    np.testing.assert_allclose(np.mean(train.examples["x"], axis=0), 0, atol=1e-6)


def test_just_below_the_largest_strength_a_feature_is_selected_and_at_it_none(config):
    config.strength = (0.95, 1.0)
    with jax.enable_x64(False):  # as in a run
        problem = table.problem(config)
        below, at = (
            optimum(problem, table.penalty(config), strength, tolerance=1e-4).params["kernel"]
            for strength in table.strengths(config)
        )
    assert np.count_nonzero(below) == 1 and np.count_nonzero(np.abs(at) > 1e-3) == 0


def test_a_file_of_data_runs_the_config_for_tables(config, capsys):
    found = command._with_config([config.data, "--config.target=died"])
    expected = f"--config={command.configs()['table']}", f"--config.data={config.data}"
    assert found == [*expected, "--config.target=died"]
    with pytest.raises(SystemExit):
        command._with_config(["missing.csv"])
    assert "there is no file missing.csv" in capsys.readouterr().err


def test_a_loss_that_there_is_not_is_refused_before_the_strengths_need_it(config):
    config.loss = "logistik"
    with pytest.raises(ValueError, match="loss is 'logistik'; pass one of 'linear', 'logistic'"):
        resolve(config, table.EXPERIMENT)
