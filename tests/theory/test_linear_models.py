"""The constants of ridge and logistic regression, against autodiff and plain enumeration."""

import jax
import numpy as np
import pytest

from fcojax.theory.linear_models import logistic_regression
from tests.theory import instances

NAMES = tuple(instances.LOSSES)


def some_points(name, shape=()):
    seen = instances.model(name)
    rng = np.random.default_rng(5)
    return rng.standard_normal((*shape, len(seen.weights), seen.dim))


def rows_of(name, k):
    seen = instances.model(name)
    return {
        "a": seen.features[k],
        "b": seen.targets[k],
        "ridge": np.full(len(seen.targets[k]), seen.ridge),
    }


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_and_noise_equal_those_of_the_loss_that_runs(name):
    seen, loss, points = instances.model(name), instances.LOSSES[name], some_points(name)
    jacobian = jax.jit(jax.jacobian(loss))
    curvature = jax.jit(jax.hessian(lambda x, rows: loss(x, rows).mean()))
    for k in (0, 2):
        x = points[k]
        each = np.asarray(jacobian(x, rows_of(name, k)))
        centred = each - each.mean(axis=0)
        assert seen.values(points)[k] == pytest.approx(float(loss(x, rows_of(name, k)).mean()))
        np.testing.assert_allclose(seen.gradients(points)[k], each.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(seen.hessians(x)[k], curvature(x, rows_of(name, k)), rtol=1e-11)
        covariance = centred.T @ centred / len(each)
        np.testing.assert_allclose(seen.covariances(x)[k], covariance, rtol=1e-10, atol=1e-14)
        assert seen.noise(points)[k] == pytest.approx(np.trace(covariance), rel=1e-11)
        assert seen.noise(points, 3)[k] == pytest.approx(np.trace(covariance) / 3, rel=1e-11)
        moment = np.mean(np.sum(each**2, axis=1))
        assert seen.second_moments(points)[k] == pytest.approx(moment, rel=1e-12)
        full = np.sum(each.mean(axis=0) ** 2)
        assert seen.second_moments(points, None)[k] == pytest.approx(full, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_optima_are_optimal(name):
    seen, known = instances.model(name), instances.constants(name)
    everywhere = np.broadcast_to(known.optimum, (len(seen.weights), seen.dim))
    assert np.abs(seen.weights @ seen.gradients(everywhere)).max() < 1e-15
    for k, only in enumerate(np.eye(len(seen.weights))):
        at = np.broadcast_to(seen.minimiser(only), everywhere.shape)
        assert np.abs(seen.gradients(at)[k]).max() < 1e-14
        assert known.client_minima[k] == seen.values(at)[k]
    assert known.minimum == seen.objective(known.optimum)
    assert known.heterogeneity > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_every_client_curves_between_alpha_and_beta(name):
    seen, known = instances.model(name), instances.constants(name)
    rng = np.random.default_rng(6)
    spectra = [
        np.linalg.eigvalsh(seen.hessians(scale * rng.standard_normal(seen.dim)))
        for scale in (0, 0.1, 1, 10, 100)
    ]
    assert np.min(spectra) >= known.strong_convexity - 1e-14
    assert np.max(spectra) <= known.smoothness + 1e-14
    assert np.max(spectra) == pytest.approx(known.smoothness)  # at zero, also for logistic
    tight = {"ridge": 1e-12, "logistic": 0.05}[name]
    assert np.min(spectra) == pytest.approx(known.strong_convexity, rel=tight)


def test_the_reference_instance():
    """Numbers that were computed independently of this library."""
    known = instances.constants("ridge")
    assert known.strong_convexity == pytest.approx(0.6467035090, abs=1e-10)
    assert known.smoothness == pytest.approx(2.8156296932, abs=1e-10)
    assert known.condition == pytest.approx(4.3538184870, abs=1e-9)
    assert known.minimum == pytest.approx(2.1149955853, abs=1e-10)
    assert known.heterogeneity == pytest.approx(1.3215100973, abs=1e-10)
    optimum = [0.12683898, -0.52016886, -0.1254845, -0.75880277, 0.01126724]
    np.testing.assert_allclose(known.optimum, optimum, atol=5e-9)


def test_newton_steps_that_overshoot_are_shortened():
    """With nearly separable data and a small ridge a full step from zero overshoots."""
    model = logistic_regression(
        [np.array([[30.0, 0.1], [-40.0, 0.3], [0.2, 5.0], [25.0, -0.1]])],
        [np.array([1.0, -1.0, 1.0, 1.0])],
        ridge=1e-8,
    )
    gradient = model.gradients(model.minimiser()[None])
    assert np.abs(gradient).max() < 1e-16
