"""Least squares, logistic and softmax regression, signals, random features."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import problems
from fcojax.problems.building import from_clients
from fcojax.problems.least_squares import normal_equations
from fcojax.problems.logistic import logistic_loss
from fcojax.problems.measures import accuracy
from fcojax.problems.softmax import cross_entropy
from tests.problems.families import mean_loss


def ragged(seed=0, dim=3, sizes=(4, 9, 6), labels=None):
    rng = np.random.default_rng(seed)
    return [
        {
            "x": rng.standard_normal((n, dim)),
            "y": rng.standard_normal(n) if labels is None else rng.integers(labels, size=n),
        }
        for n in sizes
    ]


@pytest.mark.parametrize("ridge", [0.0, 0.7])
@pytest.mark.parametrize("weights", [None, "examples", [1.0, 0.5, 3.0]])
def test_least_squares_knows_its_solution(ridge, weights):
    """Against stacked rows: those of client m times sqrt(p_m / n_m), and d rows for the ridge."""
    clients = ragged()
    sizes = np.array([len(client["y"]) for client in clients])
    p = {"examples": sizes, "None": np.ones(3)}.get(str(weights), weights)
    p = np.asarray(p, float) / np.sum(p)
    scales = np.repeat(np.sqrt(p / sizes), sizes)
    x = np.concatenate([client["x"] for client in clients]) * scales[:, None]
    y = np.concatenate([client["y"] for client in clients]) * scales
    x, y = np.vstack([x, np.sqrt(ridge) * np.eye(3)]), np.append(y, np.zeros(3))
    expected = np.linalg.lstsq(x, y)[0]

    problem = problems.least_squares(from_clients(clients, weights), ridge=ridge)
    at = problem.measures(jnp.asarray(expected))
    assert at["error"] <= 1e-14
    assert abs(at["suboptimality"]) <= 1e-28
    other = expected + np.array([1.0, -2.0, 0.5])
    loss, least = (
        mean_loss(problem.loss, jnp.asarray(w), problem.train) for w in (other, expected)
    )
    gap = problem.measures(jnp.asarray(other))["suboptimality"]
    assert gap == pytest.approx(float(loss - least), rel=1e-12)


def test_normal_equations_are_curvature_and_slope():
    problem = problems.least_squares(from_clients(ragged(), "examples"), ridge=0.3)
    hessian, slope = normal_equations(problem.train, ridge=0.3)

    def value(w):
        return mean_loss(problem.loss, w, problem.train)

    # F is quadratic, so its gradients at zero and at the unit vectors determine it.
    slopes = jax.jit(jax.vmap(jax.grad(value)))(jnp.vstack([jnp.zeros(3), jnp.eye(3)]))
    np.testing.assert_allclose(slopes[0], -slope, atol=1e-13)
    np.testing.assert_allclose(slopes[1:] - slopes[:1], hessian, atol=1e-13)


def test_without_a_unique_solution_there_is_nothing_to_measure():
    data = from_clients(ragged(dim=30))
    assert problems.least_squares(data).measures(jnp.zeros(30)) == {}
    assert problems.least_squares(data, ridge=1e-3).measures(jnp.zeros(30))["error"] > 0


def test_synthetic_least_squares_have_the_stated_spreads():
    options = {"num_clients": 40, "num_examples": 400, "dim": 6, "noise_scale": 0.0}
    alike = problems.synthetic_least_squares(**options, condition=50.0)
    variances = np.asarray(alike.train.examples["x"]).var(axis=0)
    np.testing.assert_allclose(variances, np.geomspace(1, 1 / 50, 6), rtol=0.05)
    # Without noise and with one truth, the pooled solution has loss zero on every client.
    solution = np.linalg.solve(*normal_equations(alike.train))
    assert mean_loss(alike.loss, jnp.asarray(solution, jnp.float32), alike.train) < 1e-10

    apart = problems.synthetic_least_squares(**options, truth_spread=2.0, covariance_spread=0.5)
    x, y = (np.asarray(apart.train.examples[name]).reshape(40, 400, -1) for name in "xy")
    truths = np.stack([np.linalg.lstsq(x[m], y[m, :, 0])[0] for m in range(40)])
    assert truths.std(axis=0).mean() == pytest.approx(2.0, rel=0.15)
    logs = np.log(x.var(axis=1) / np.geomspace(1, 1 / 10, 6))
    assert logs.std() == pytest.approx(0.5, rel=0.1)


def test_the_logistic_loss_is_accurate_at_any_margin():
    """log(1 + exp(-m)) and its derivative in float32, against another formula in float64."""
    logits = np.array([-1e4, -100.0, -20.0, 0.5, 20.0, 100.0, 1e4])
    for label in (0, 1):
        rows = {"x": jnp.asarray(logits, jnp.float32)[:, None], "y": jnp.full(7, label)}

        def losses(bias, rows=rows):
            return logistic_loss({"kernel": jnp.ones(1, jnp.float32), "bias": bias}, rows)

        value, slope = jax.jit(losses)(jnp.float32(0)), jax.jacobian(losses)(jnp.float32(0))
        margin = (2 * label - 1) * logits
        np.testing.assert_allclose(value, np.logaddexp(0, -margin), rtol=1e-5, atol=1e-37)
        exact = (1 - 2 * label) * np.exp(-np.logaddexp(0, margin))
        np.testing.assert_allclose(slope, exact, rtol=1e-5, atol=1e-37)


def test_the_softmax_gradient_by_hand():
    rows = ragged(labels=4)[1]
    kernel = np.random.default_rng(1).standard_normal((3, 4))
    params = {"kernel": jnp.asarray(kernel), "bias": jnp.zeros(4)}
    slope = jax.jit(jax.grad(lambda params: jnp.mean(cross_entropy(params, rows))))(params)
    odds = np.exp(rows["x"] @ kernel)
    excess = odds / odds.sum(axis=1, keepdims=True) - np.eye(4)[rows["y"]]
    np.testing.assert_allclose(slope["kernel"], rows["x"].T @ excess / 9, atol=1e-13)
    np.testing.assert_allclose(slope["bias"], excess.mean(axis=0), atol=1e-13)


def test_accuracy_weighs_clients_as_the_validation_set_does():
    clients = [{"x": np.array([[1.0], [1.0], [-1.0]]), "y": np.array([1, 1, 1])}]
    clients.append({"x": np.array([[1.0]]), "y": np.array([0])})
    params = {"kernel": jnp.array([1.0]), "bias": jnp.array(0.0)}
    for weights, expected in ((None, (2 / 3 + 0) / 2), ("examples", 2 / 4)):
        data = from_clients(clients, weights)
        found = problems.logistic(data, data).measures(params)["accuracy"]
        assert found == pytest.approx(expected)
    assert accuracy(lambda params, rows: rows["y"], None)(params) == {}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2], "label 2 in row 2 of client 0 of the training data is not one of 2 classes"),
        ([0, -1, 1], "label -1 in row 1"),
        ([0.0, 0.5, 1.0], "label 0.5 in row 1"),
    ],
)
def test_labels_out_of_range_are_refused(labels, message):
    data = from_clients([{"x": np.zeros((3, 2)), "y": np.array(labels)}])
    for build in (problems.logistic, lambda data: problems.softmax(data, num_classes=2)):
        with pytest.raises(ValueError, match=message):
            build(data)
