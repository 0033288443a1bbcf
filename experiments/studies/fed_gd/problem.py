"""Least squares, ridge and logistic regression on heterogeneous clients."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.study import Config
from fcojax.problems import ClientData
from fcojax.problems.least_squares import half_squared_error
from fcojax.problems.problem import Loss
from fcojax.theory import least_squares, linear_models
from fcojax.types import Array, PyTree


def clients_of(config: Config) -> tuple[list[np.ndarray], list[np.ndarray], Any]:
    """Return features, targets and factored quadratics; clients differ in truth and scale."""
    rng = np.random.default_rng(config.data_seed)
    features = [
        rng.standard_normal((m, config.dim)) * (1 + 0.5 * k) for k, m in enumerate(config.sizes)
    ]
    targets = [
        a @ rng.standard_normal(config.dim) + 0.1 * rng.standard_normal(len(a)) for a in features
    ]
    return features, targets, least_squares.least_squares_clients(features, targets, reading="sum")


@functools.cache
def regression(name: str, seed: int) -> tuple[Any, Any]:
    """Return ridge or logistic regression on heterogeneous clients, and its constants."""
    rng = np.random.default_rng(seed)
    sizes, dim = ((12, 20, 9, 15), 5) if name == "ridge" else ((10, 14, 8, 12, 20), 4)
    features = [rng.standard_normal((m, dim)) for m in sizes]
    if name == "logistic":
        longest = max(np.linalg.norm(a, axis=1).max() for a in features)
        features = [a / longest for a in features]
    truths = [rng.standard_normal(dim) for _ in sizes]
    targets = [
        a @ x + 0.1 * rng.standard_normal(len(a)) for a, x in zip(features, truths, strict=True)
    ]
    if name == "ridge":
        model = linear_models.ridge_regression(features, targets, ridge=0.5)
    else:
        signs = [np.where(b > 0, 1.0, -1.0) for b in targets]
        model = linear_models.logistic_regression(features, signs, ridge=0.1)
    return model, model.constants()


def population(
    features: Sequence[np.ndarray], targets: Sequence[np.ndarray], weights: np.ndarray | None = None
) -> ClientData:
    """Return clients with a row for each pair of features and a target."""
    pairs = zip(features, targets, strict=True)
    return fcojax.from_clients([{"x": a, "y": b} for a, b in pairs], weights)


def loss_of(name: str, ridge: float) -> Loss:
    """Return the loss of a row, with the ridge term of the problem of that name."""
    losses = {"ridge": half_squared_error, "logistic": _logistic_loss}
    return functools.partial(losses[name], ridge=ridge)


def _logistic_loss(x: Array, rows: PyTree, ridge: float) -> Array:
    return jax.nn.softplus(-rows["y"] * (rows["x"] @ x)) + ridge / 2 * jnp.sum(x**2)
