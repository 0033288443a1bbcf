import numpy as np
import pytest

from experiments.report.summary import Criterion
from tests.experiments.studies.fabricated import sweep_of
from tests.experiments.studies.quick_sweeps import quick_config


def test_the_baselines_have_all_scans_and_those_of_one_session():
    sweep, config = quick_config("fmri")
    problem = sweep.problem(config)
    pooled, alone = (sweep.plans[label](config, problem)[0] for label in ("centralized", "local"))
    assert (pooled.num_clients, pooled.max_size) == (1, 8 * 18)
    assert (alone.num_clients, alone.max_size) == (1, 18)
    np.testing.assert_array_equal(alone.examples["x"], problem.train.examples["x"][:18])


def test_the_share_of_good_rates_is_counted_for_each_seed():
    sweep, config = quick_config("fmri")

    def seen(accuracy, density):
        return lambda seed, at: {
            "accuracy": accuracy + 1e-3 * seed,
            "density": density * (1 + 0.01 * seed),
        }

    good, bad = (0.9, 0.895, 0.5, 0.4), (0.88, 0.875, 0.875, 0.4)
    rows, summary = sweep_of(
        {
            label: {
                (0.1 * (i + 1), 1.0): seen(accuracy, density)
                for i, accuracy in enumerate(accuracies)
            }
            for label, accuracies, density in (
                ("fed_dual_avg", good, 0.1),
                ("fed_mid", bad, 0.25),
            )
        },
        Criterion("accuracy", "max", 40),
        (0, 50, 100),
    )
    config.criterion_rounds = 40
    density, accuracy, share, own, mean = sweep.claims(config, rows, summary)
    assert density.measured == pytest.approx(2.5) and density.holds
    assert accuracy.measured == pytest.approx(0.02) and accuracy.holds
    # On a common scale FedMiD has no good rates; near its own best it has more than FedDualAvg.
    assert share.measured == pytest.approx(2 / 4) and share.holds and share.source
    assert own.measured == pytest.approx(2 / 4 - 3 / 4) and not own.holds and not own.source
    assert mean.measured == pytest.approx((0.9 + 0.895 - 0.88 - 0.875 + 0.5 - 0.875) / 4, abs=1e-3)


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
