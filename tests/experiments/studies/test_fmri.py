import jax
import numpy as np
import pytest

from experiments.report.summary import Criterion, best_right
from experiments.studies.shared import mirror_descent
from tests.experiments.studies.fabricated import sweep_of
from tests.experiments.studies.quick_sweeps import quick_config


def test_the_baselines_have_all_scans_and_those_of_one_session():
    sweep, config = quick_config("fmri")
    problem = sweep.problem(config)
    pooled, alone = (sweep.plans[label](config, problem)[0] for label in ("centralized", "local"))
    assert (pooled.num_clients, pooled.max_size) == (1, 8 * 18)
    assert (alone.num_clients, alone.max_size) == (1, 18)
    np.testing.assert_array_equal(alone.examples["x"], problem.train.examples["x"][:18])
    assert all(sweep.algorithms[label] is mirror_descent for label in ("centralized", "local"))


@pytest.mark.parametrize("num_rounds, steps", [(300, [1, 1]), (20, [11, 2]), (10, [22, 5])])
def test_the_baselines_have_the_epochs_of_the_authors_trainer(num_rounds, steps):
    """144 and 18 scans: 50 epochs are 225 batches of 32 and 50 of 18, but at least one a round."""
    sweep, config = quick_config("fmri")
    config.num_rounds = num_rounds
    problem = sweep.problem(config)
    works = [sweep.plans[label](config, problem)[1] for label in ("centralized", "local")]
    assert [work.num_steps for work in works] == steps
    assert [work.batch_size for work in works] == [32, 18]


def test_columns_say_which_scans_are_right():
    """Read back, the columns of 32 scans each are the predictions."""
    sweep, config = quick_config("fmri")
    problem = sweep.problem(config)
    held_out = problem.validation.examples
    rows, expected = [], []
    for seed in range(3):
        params = problem.init(jax.random.key(seed)) | {"bias": 0.3}
        found = {name: float(value) for name, value in problem.measures(params).items()}
        rows.append(found | {"algorithm": "local", "client_lr": 0.1, "seed": seed, "round": 5})
        margins = np.asarray(held_out["x"]) @ np.asarray(params["kernel"]) + 0.3
        expected.append((margins > 0) == (np.asarray(held_out["y"]) > 0))
    found = best_right(rows, "local", {"best": {"client_lr": 0.1}})
    size = len(expected[0])
    np.testing.assert_array_equal(found[:, :size], expected)
    assert not found[:, size:].any()
    assert rows[0]["accuracy"] == pytest.approx(np.mean(expected[0]))
    before = [{name: row[name] for name in row if not name.startswith("right_")} for row in rows]
    assert best_right(before, "local", {"best": {"client_lr": 0.1}}) is None


def test_the_share_of_good_rates_is_counted_for_each_seed(tmp_path):
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
    density, accuracy, share, own, mean, ahead = sweep.claims(config, rows, summary)
    assert density.measured == pytest.approx(2.5) and density.holds
    assert accuracy.measured == pytest.approx(0.02) and accuracy.holds
    # On a common scale FedMiD has no good rates; near its own best it has more than FedDualAvg.
    assert share.measured == pytest.approx(2 / 4) and share.holds and share.source
    assert own.measured == pytest.approx(2 / 4 - 3 / 4) and not own.holds and not own.source
    assert mean.measured == pytest.approx((0.9 + 0.895 - 0.88 - 0.875 + 0.5 - 0.875) / 4, abs=1e-3)
    # FedMiD is denser at all rates, and then as good as a random classifier.
    assert ahead.measured == pytest.approx(0.901 - 0.5)
    (drawn,) = sweep.figures(config, rows, summary, tmp_path)
    assert drawn.name == "density.png" and drawn.stat().st_size > 10_000


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
