"""Skeleton of a problem: the mean of points that differ by client."""

import jax.numpy as jnp
import numpy as np

import fcojax


def loss(params, rows):
    """Return one number per example; the library takes means."""
    return ((rows["a"] - params[None]) ** 2).sum(axis=-1) / 2


def my_problem(*, num_clients=4, num_examples=10, dim=3, seed=0):
    """Return clients whose examples have different means."""
    rng = np.random.default_rng(seed)
    centres = 1.0 + rng.standard_normal((num_clients, dim))
    noise = rng.standard_normal((num_clients, num_examples, dim))
    points = (centres[:, None] + noise).astype(np.float32)
    truth = points.mean(axis=(0, 1))
    return fcojax.problems.Problem(
        loss=loss,
        train=fcojax.from_clients([{"a": own} for own in points]),
        validation=None,
        init=lambda key: jnp.zeros(dim, points.dtype),
        measures=lambda params: {"error": jnp.linalg.norm(params - truth)},
    )
