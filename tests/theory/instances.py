"""Two regressions that several tests share, for the theory and for the engine."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax.theory import linear_models


def squared_loss(x, rows):
    return (rows["a"] @ x - rows["b"]) ** 2 / 2 + rows["ridge"] / 2 * jnp.sum(x**2)


def logistic_loss(x, rows):
    return jax.nn.softplus(-rows["b"] * (rows["a"] @ x)) + rows["ridge"] / 2 * jnp.sum(x**2)


LOSSES = {"ridge": squared_loss, "logistic": logistic_loss}


@functools.cache
def model(name):
    """Return the named problem with its constants."""
    rng = np.random.default_rng(0)
    if name == "ridge":
        sizes = (12, 20, 9, 15)
        features = [rng.standard_normal((m, 5)) for m in sizes]
        truths = [rng.standard_normal(5) for _ in sizes]
        targets = [
            a @ x + 0.1 * rng.standard_normal(len(a)) for a, x in zip(features, truths, strict=True)
        ]
        return linear_models.ridge_regression(features, targets, ridge=0.5)
    sizes = (10, 14, 8, 12, 20)
    features = [rng.standard_normal((m, 4)) for m in sizes]
    longest = max(np.linalg.norm(a, axis=1).max() for a in features)
    features = [a / longest for a in features]
    targets = [
        np.where(a @ rng.standard_normal(4) + 0.1 * rng.standard_normal(len(a)) > 0, 1.0, -1.0)
        for a in features
    ]
    return linear_models.logistic_regression(features, targets, ridge=0.1)


@functools.cache
def constants(name):
    return model(name).constants()


@functools.cache
def population(name):
    """Return the same clients for the engine."""
    seen = model(name)
    clients = [
        {"a": a, "b": b, "ridge": np.full(len(b), seen.ridge)}
        for a, b in zip(seen.features, seen.targets, strict=True)
    ]
    with jax.ensure_compile_time_eval():  # a cache filled inside a jit would keep tracers
        return fcojax.from_clients(clients, seen.weights)
