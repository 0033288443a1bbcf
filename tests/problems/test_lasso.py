import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax.problems.linear_models import squared_error
from fcojax.problems.measures import support_recovery
from fcojax.problems.planted import lasso

SMALL = {"num_clients": 30, "num_examples": 40, "dim": 12, "num_true": 5}


def test_the_data_have_the_stated_moments():
    problem = lasso(**SMALL, num_validation=7, mean_scale=2.0, noise_scale=0.5, seed=3)
    x = np.asarray(problem.train.examples["x"]).reshape(30, 40, 12)
    y = np.asarray(problem.train.examples["y"])
    assert problem.validation.sizes.tolist() == [7] * 30
    within = (x - x.mean(axis=1, keepdims=True)).var(axis=(0, 1)) * 40 / 39
    np.testing.assert_allclose(within, 1.0, atol=0.15)
    assert x.mean(axis=1).std() == pytest.approx(2.0, rel=0.1)
    residual = y - x.reshape(-1, 12) @ (np.arange(12) < 5)
    assert residual.std() == pytest.approx(0.5, rel=0.1)
    start = problem.init(jax.random.key(0))["kernel"]  # uniform, as Glorot's
    assert abs(start.mean()) < 0.5 * abs(start).mean() and abs(start).max() <= (6 / 13) ** 0.5
    # Validation clients share the means of the training clients.
    fresh = np.asarray(problem.validation.examples["x"]).reshape(30, 7, 12).mean(axis=1)
    assert np.abs(fresh - x.mean(axis=1)).mean() < 0.5


def test_features_can_be_correlated():
    problem = lasso(**SMALL, mean_scale=0.0, correlation=0.5)
    correlations = np.corrcoef(np.asarray(problem.train.examples["x"]).T)
    expected = 0.5 ** np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    np.testing.assert_allclose(correlations, expected, atol=0.1)


def test_squared_error_has_no_half():
    params = {"kernel": jnp.array([1.0, -1.0]), "bias": jnp.array(0.5)}
    rows = {"x": jnp.array([[3.0, 1.0]]), "y": jnp.array([0.0])}
    assert squared_error(params, rows).tolist() == [6.25]


def test_measures_do_not_count_the_bias():
    measures = lasso(**SMALL).measures
    found = measures({"kernel": jnp.where(jnp.arange(12) < 5, 1.0, 0.0), "bias": jnp.array(7.0)})
    assert float(found["f1"]) == 1.0 and float(found["density"]) == pytest.approx(5 / 12)


@pytest.mark.parametrize(
    ("estimate", "truth", "expected"),
    [
        ([1.0, 1.0, 0.0, 0.0], [1, 0, 1, 0], (0.5, 0.5, 0.5, 0.5)),
        ([0.0, 0.0], [1, 0], (0.0, 0.0, 0.0, 0.0)),  # no entry predicted: zero, not NaN
        ([1e-2, 1.0], [1, 1], (0.5, 1.0, 0.5, 2 / 3)),  # entries at the threshold are not found
        ([-2.0, 3.0], [1, 1], (1.0, 1.0, 1.0, 1.0)),
    ],
)
def test_support_recovery_by_hand(estimate, truth, expected):
    found = support_recovery(jnp.array(estimate), np.array(truth), cut=1e-2)
    np.testing.assert_allclose([found[name] for name in found], expected)
    assert list(found) == ["density", "precision", "recall", "f1"]
