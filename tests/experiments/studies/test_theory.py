import numpy as np
import pytest
from ml_collections import ConfigDict

from experiments.report.rows import column, select
from experiments.studies.theory.rows import tasks


@pytest.mark.slow
def test_the_divergence_and_the_optimum_on_the_simplex():
    config = ConfigDict({"data_seed": 0, "num_draws": 4, "l1_scale": 0.15, "p_norm_exponent": 1.2})
    for setting in ("l1", "ball", "simplex"):
        config[f"{setting}_clients"], config[f"{setting}_dim"] = 3, 8
    known = tasks(config)
    entropy, plain = known["entropy"], known["simplex"]
    best, start = entropy.optimum, entropy.start
    assert best.sum() == pytest.approx(1) and 0 < (best > 0).sum() < 8
    slope = np.array([plain.gap(best + 1e-6 * step) for step in np.eye(8)]) / 1e-6
    # Where the optimum is not zero the gradient is equal and smallest.
    np.testing.assert_allclose(slope[best > 0], slope.min(), atol=1e-4)
    # h(w*) - h(w) - <grad h(w), w* - w> with the gradient of each mirror.
    inside = best > 0
    bregman = np.sum(best[inside] * np.log(best[inside])) - np.sum(start * np.log(start))
    bregman -= np.asarray(entropy.mirror.to_dual(start)) @ (best - start)
    assert entropy.constants.distance == pytest.approx(bregman, rel=1e-6)
    assert plain.constants.distance == pytest.approx(np.sum((best - start) ** 2) / 2)
    assert plain.constants[1:] == entropy.constants[1:]
    # h(x) = |x|_p^2 / (2 (p - 1)), whose gradient at 1 is d^(2 / p - 1) / (p - 1) in all entries.
    best, half = known["p_norm"].optimum, 8 ** (2 / 1.2) / 2
    there = np.sum(np.abs(best) ** 1.2) ** (2 / 1.2) / 2
    bregman = (there - half - np.sum(best - 1) * 8 ** (2 / 1.2 - 1)) / (1.2 - 1)
    assert known["p_norm"].constants.distance == pytest.approx(bregman, rel=1e-5)
    assert known["l1"].constants.distance == pytest.approx(np.sum((best - 1) ** 2) / 2, rel=1e-5)
    assert known["l1"].constants[1:] == known["p_norm"].constants[1:]


@pytest.mark.slow
def test_the_distance_of_duals_is_proportional_to_the_rate(found):
    """The distance is proportional to first order; the rows contain its square."""
    _, config, rows, _ = found
    for setting in ("l1", "sampled", "p_norm", "ball", "simplex", "entropy"):
        own = select(rows, part="bound", setting=setting, round=config.num_rounds)
        squares = {row["rate_share"]: row["discrepancy"] for row in own}
        assert squares[0.1] / squares[0.01] == pytest.approx(100, rel=0.2)


@pytest.mark.slow
def test_supports_of_all_models_are_watched(found):
    """A support that changes at the last evaluation is not final."""
    _, config, _, summary = found
    lines = summary["evaluations from which clients' supports with l1 are final"]
    assert len(lines) == config.sparsity_clients
    for method in summary["methods"]:
        looks = [line[method["with l1"]] for line in lines]
        settled = [look for look in looks if look is not None]
        assert len(settled) == method["clients whose support becomes final"]
        assert all(look < config.sparsity_rounds for look in settled)


@pytest.mark.slow
def test_no_model_leaves_the_ball(found):
    _, _, rows, _ = found
    norms = column(select(rows, part="curse"), "norm")
    assert norms.max() < 1 + 1e-12 and np.ptp(norms) > 0.1
