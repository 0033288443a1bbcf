r"""Sparse linear regression with a planted support, every client with its own feature mean.

The federated LASSO of Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021,
section 5.1: squared error without the factor 1/2, a bias that no penalty touches.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.problems.clients import ClientData, from_rows
from fcojax.problems.measures import at_cuts, support_recovery
from fcojax.problems.problem import Problem
from fcojax.types import Array


def squared_error(params, rows) -> Array:
    """``(x^T kernel + bias - y)^2`` for each row."""
    return (rows["x"] @ params["kernel"] + params["bias"] - rows["y"]) ** 2


def lasso(
    *,
    num_clients: int = 64,
    num_examples: int = 128,
    dim: int = 1024,
    num_true: int = 512,
    mean_scale: float = 0.1,
    correlation: float = 0.0,
    bias_scale: float = 1.0,
    noise_scale: float = 1.0,
    num_validation: int = 32,
    cuts: Sequence[float] = (1e-2, 1e-4),
    seed: int = 0,
) -> Problem:
    r"""The planted problem: ones on the first ``num_true`` features, zeros on the others.

    Client m draws :math:`x = \mu_m + \delta` with :math:`\mu_m \sim N(0, s^2 I)` fixed and
    :math:`\delta \sim N(0, \Sigma)`, and observes :math:`y = x^T w + b + \varepsilon`. Large client
    means make the clients' Hessians ill-conditioned: with s = 1 and a thousand features, rates
    above 0.003 diverge whatever the algorithm. Parameters are ``{"bias": b, "kernel": w}``, and
    ``problem.init(key)`` is a start.

    Args:
      num_clients: M.
      num_examples: examples a client trains on.
      dim: number of features.
      num_true: features whose weight is one.
      mean_scale: s, the standard deviation of the client means.
      correlation: c, where :math:`\Sigma_{ij} = c^{|i-j|}`.
      bias_scale: standard deviation of the true bias.
      noise_scale: standard deviation of the observation noise.
      num_validation: fresh examples a client is judged on.
      cuts: magnitudes above which a weight counts as found. The first one's measures are called
        ``f1``, ``density``, ``precision`` and ``recall``, the others' carry the cut in the name.
      seed: what the data are drawn from.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> problem = fcojax.problems.lasso(num_clients=3, num_examples=4, dim=6, num_true=2)
      >>> kernel = jnp.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.5])  # one too many
      >>> measures = problem.measures({"kernel": kernel, "bias": jnp.array(0.0)})
      >>> round(float(measures["precision"]), 3), float(measures["recall"])
      (0.667, 1.0)
    """
    _refuse_bad_numbers(num_true, dim, correlation, mean_scale, bias_scale, noise_scale)
    rng = np.random.default_rng(seed)
    truth = np.where(np.arange(dim) < num_true, 1.0, 0.0).astype(np.float32)
    bias = np.float32(bias_scale * rng.standard_normal())
    means = mean_scale * rng.standard_normal((num_clients, 1, dim), dtype=np.float32)

    def draw(count: int) -> ClientData:
        x = _correlated(rng, (num_clients, count, dim), correlation)
        x += means
        noise = noise_scale * rng.standard_normal((num_clients, count), dtype=np.float32)
        y = x @ truth + bias + noise
        return from_rows(
            {"x": x.reshape(-1, dim), "y": y.reshape(-1).astype(np.float32)}, [count] * num_clients
        )

    def init(key):
        limit = (6 / (dim + 1)) ** 0.5
        kernel = jax.random.uniform(key, (dim,), jnp.float32, -limit, limit)
        return {"kernel": kernel, "bias": jnp.zeros((), jnp.float32)}

    def measures(params):
        return at_cuts(lambda cut: support_recovery(params["kernel"], truth, cut), cuts)

    train = draw(num_examples)
    return Problem(squared_error, train, draw(num_validation), init, measures)


def scale_max(data: ClientData) -> Array:
    r"""The least strength of l1 at which the zero kernel is optimal.

    With the kernel at zero the best bias is the weighted mean of the labels, and the largest entry
    of the gradient there is the strength that just holds the kernel at zero.
    """

    def null_loss(params):
        return jnp.sum(weights * squared_error(params, data.examples)) / jnp.sum(weights)

    x, y = data.examples["x"], data.examples["y"]
    share = data.weights / data.sizes.astype(data.weights.dtype)
    weights = jnp.repeat(share, data.sizes, total_repeat_length=y.shape[0]).astype(y.dtype)
    bias = jnp.sum(weights * y) / jnp.sum(weights)
    gradient = jax.grad(null_loss)({"kernel": jnp.zeros(x.shape[1], x.dtype), "bias": bias})
    return jnp.max(jnp.abs(gradient["kernel"]))


def _correlated(rng, shape, correlation) -> np.ndarray:
    """Standard normal features whose correlation falls off geometrically with distance."""
    noise = rng.standard_normal(shape, dtype=np.float32)
    if correlation:
        fresh = np.float32((1 - correlation**2) ** 0.5)
        for column in range(1, shape[-1]):
            noise[..., column] *= fresh
            noise[..., column] += np.float32(correlation) * noise[..., column - 1]
    return noise


def _refuse_bad_numbers(num_true, dim, correlation, *scales) -> None:
    if not 0 < num_true <= dim:
        raise ValueError(f"num_true is {num_true} of {dim} features; pass at least 1, at most dim.")
    if not -1 < correlation < 1:
        raise ValueError(f"correlation is {correlation}; pass a number strictly within (-1, 1).")
    if any(scale < 0 for scale in scales):
        raise ValueError(f"a standard deviation is negative among {scales}; pass zero or more.")
