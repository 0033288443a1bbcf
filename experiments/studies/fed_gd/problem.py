"""Least squares, ridge and logistic regression on heterogeneous clients."""

import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import csr_array

import fcojax
from experiments.study import Config
from fcojax import datasets
from fcojax.problems import ClientData, partition
from fcojax.problems.least_squares import half_squared_error
from fcojax.problems.losses import Loss
from fcojax.theory import least_squares, linear_models
from fcojax.types import Array, PyTree

Arrays = Sequence[np.ndarray]


def clients_of(config: Config) -> tuple[Arrays, Arrays, Any]:
    """Return features, targets and factored quadratics; drawn clients differ in true weights."""
    if config.data_dir:
        features, targets = _credit(config)
    else:
        rng, dim = np.random.default_rng(config.data_seed), config.dim
        features = [
            rng.standard_normal((m, dim)) * (1 + 0.5 * k) for k, m in enumerate(config.sizes)
        ]
        targets = [
            a @ rng.standard_normal(dim) + 0.1 * rng.standard_normal(len(a)) for a in features
        ]
    return features, targets, least_squares.least_squares_clients(features, targets, reading="sum")


def _credit(config: Config) -> tuple[Arrays, Arrays]:
    """Return German credit, divided among clients in Dirichlet shares of the labels 1 and -1."""
    packed = pathlib.Path(config.data_dir) / "german_numer_scale.npz"
    if packed.exists():
        names = ("data", "indices", "indptr", "shape", "labels")
        stored = datasets.npz(packed, {name: f"train_{name}" for name in names}).examples
        *parts, shape, labels = (stored[name] for name in names)
        x = csr_array(tuple(parts), shape=tuple(shape)).toarray()
    else:
        read = datasets.libsvm(packed.with_name("german.numer_scale"), regression=True).examples
        x, labels = read["x"], read["y"]
    x, y = np.column_stack([x, np.ones(len(x))]).astype(float), labels.astype(float)
    number, seed = len(config.sizes), config.data_seed
    shares = partition.dirichlet(y, number, config.concentration, seed=seed).indices()
    return [x[mine] for mine in shares], [y[mine] for mine in shares]


def regression(config: Config, name: str) -> tuple[Any, Any]:
    """Return ridge or logistic regression on heterogeneous clients, and its constants."""
    features, targets = _credit(config) if config.data_dir else _drawn(config, name)
    if name == "ridge":
        model = linear_models.ridge_regression(features, targets, ridge=0.5)
    else:
        signs = [np.where(b > 0, 1.0, -1.0) for b in targets]
        model = linear_models.logistic_regression(features, signs, ridge=0.1)
    return model, model.constants()


def _drawn(config: Config, name: str) -> tuple[Arrays, Arrays]:
    rng = np.random.default_rng(config.data_seed)
    sizes, dim = ((12, 20, 9, 15), 5) if name == "ridge" else ((10, 14, 8, 12, 20), 4)
    features = [rng.standard_normal((m, dim)) for m in sizes]
    if name == "logistic":
        longest = max(np.linalg.norm(a, axis=1).max() for a in features)
        features = [a / longest for a in features]
    truths = [rng.standard_normal(dim) for _ in sizes]
    pairs = zip(features, truths, strict=True)
    return features, [a @ x + 0.1 * rng.standard_normal(len(a)) for a, x in pairs]


def population(features: Arrays, targets: Arrays, weights: Any = None) -> ClientData:
    """Return clients whose rows are pairs of features and a target."""
    pairs = zip(features, targets, strict=True)
    return fcojax.from_clients([{"x": a, "y": b} for a, b in pairs], weights)


def loss_of(name: str, ridge: float) -> Loss:
    """Return the loss of a row, with the problem's ridge term."""
    return functools.partial(half_squared_error if name == "ridge" else _logistic, ridge=ridge)


def _logistic(x: Array, rows: PyTree, ridge: float) -> Array:
    return jax.nn.softplus(-rows["y"] * (rows["x"] @ x)) + ridge / 2 * jnp.sum(x**2)
