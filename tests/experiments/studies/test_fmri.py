import numpy as np
import pytest

from tests.experiments.studies.quick_sweeps import quick_config


def test_the_baselines_have_all_scans_and_those_of_one_session():
    sweep, config = quick_config("fmri")
    problem = sweep.problem(config)
    pooled, alone = (
        sweep.algorithms[label].setting(config, problem).train for label in ("centralized", "local")
    )
    assert (pooled.num_clients, pooled.max_size) == (1, 8 * 18)
    assert (alone.num_clients, alone.max_size) == (1, 18)
    np.testing.assert_array_equal(alone.examples["x"], problem.train.examples["x"][:18])


def test_the_share_of_good_rates_is_counted_over_the_grid():
    sweep, config = quick_config("fmri")
    accuracies = {"fed_dual_avg": (0.9, 0.895, 0.5, 0.4), "fed_mid": (0.95, 0.9, 0.5, 0.4)}
    rates = (0.1, 0.2, 0.3, 0.4)
    rows = [
        {"algorithm": label, "client_lr": rate, "seed": 0, "round": 100, "status": "",
         "accuracy": accuracy}
        for label, seen in accuracies.items()
        for rate, accuracy in zip(rates, seen, strict=True)
    ]  # fmt: skip
    last = {"fed_dual_avg": {"density": 0.1}, "fed_mid": {"density": 0.25}}
    summary = {
        "algorithms": {
            label: {"best": {"client_lr": 0.1}, "last": last[label]} for label in accuracies
        }
    }
    density, share = sweep.claims(config, rows, summary)
    assert density.measured == pytest.approx(2.5)
    assert share.measured == pytest.approx(2 / 4 - 1 / 4)


def test_the_weights_are_drawn_on_the_grid(tmp_path):
    sweep, config = quick_config("fmri")
    (tmp_path / "models").mkdir()
    (tmp_path / "figures").mkdir()
    weights = np.linspace(-1, 1, config.num_voxels)
    for label in ("fed_dual_avg", "local"):
        np.savez(tmp_path / "models" / f"{label}.npz", kernel=weights)
    summary = {"algorithms": {"fed_dual_avg": {}, "local": {}, "fed_mid": {}}}
    (drawn,) = sweep.figures(config, [], summary, tmp_path / "figures")
    assert drawn.name == "weights.png"
    assert drawn.stat().st_size > 10_000
    assert sweep.figures(config, [], {"algorithms": {}}, tmp_path / "figures") == []


@pytest.mark.parametrize("session", [-1, 4])
def test_a_session_that_is_not_there_is_refused(session):
    sweep, config = quick_config("fmri")
    config.sessions, config.local_client = (4, 4), session
    with pytest.raises(ValueError, match=f"local_client is {session}; pass one of the 4 sessions"):
        sweep.algorithms["local"].setting(config, sweep.problem(config))
