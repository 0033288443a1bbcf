r"""Sparse linear regression with a planted support and a feature mean per client.

The federated LASSO of Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021,
section 5.1: squared error without the factor 1/2, and a bias without penalty.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import validated
from fcojax.problems.clients import ClientData, from_stacked
from fcojax.problems.measures import at_cuts, support_recovery
from fcojax.problems.problem import Problem
from fcojax.types import Array, Count, NonNegative


def squared_error(params, rows) -> Array:
    """Return ``(x^T kernel + bias - y)^2`` for each row."""
    return (rows["x"] @ params["kernel"] + params["bias"] - rows["y"]) ** 2


@validated
def lasso(
    *,
    num_clients: Count = 64,
    num_examples: Count = 128,
    dim: Count = 1024,
    num_true: Count = 512,
    mean_scale: NonNegative = 0.1,
    correlation: float = 0.0,
    bias_scale: NonNegative = 1.0,
    noise_scale: NonNegative = 1.0,
    num_validation: Count = 32,
    cuts: Sequence[float] = (1e-2, 1e-4),
    seed: int = 0,
) -> Problem:
    r"""Linear regression whose true weights are one on the first ``num_true`` features, else zero.

    Client m draws :math:`x = \mu_m + \delta` with :math:`\mu_m \sim N(0, s^2 I)` fixed and
    :math:`\delta \sim N(0, \Sigma)`, and observes :math:`y = x^T w + b + \varepsilon`. Large client
    means make the clients' Hessians ill-conditioned: with s = 1 and a thousand features, every
    algorithm diverges at rates above 0.003. Parameters are ``{"bias": b, "kernel": w}``.

    Args:
      num_clients: number of clients M.
      num_examples: training examples per client.
      dim: number of features.
      num_true: number of features whose weight is one.
      mean_scale: s, the standard deviation of the client means.
      correlation: c, within (-1, 1), where :math:`\Sigma_{ij} = c^{|i-j|}`.
      bias_scale: standard deviation of the true bias.
      noise_scale: standard deviation of the observation noise.
      num_validation: validation examples per client.
      cuts: magnitudes above which a weight counts as found; measures at the first are named ``f1``,
        ``density``, ``precision`` and ``recall``, those at others have the cut in their name.
      seed: seed of the data.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> problem = fcojax.problems.lasso(num_clients=3, num_examples=4, dim=6, num_true=2)
      >>> kernel = jnp.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.5])  # one too many
      >>> measures = problem.measures({"kernel": kernel, "bias": jnp.array(0.0)})
      >>> round(float(measures["precision"]), 3), float(measures["recall"])
      (0.667, 1.0)
    """
    if num_true > dim or not -1 < correlation < 1:
        raise ValueError(
            f"num_true is {num_true} of dim = {dim} features, with correlation {correlation}; pass "
            "at most dim, and a correlation within (-1, 1)."
        )
    rng = np.random.default_rng(seed)
    truth = np.where(np.arange(dim) < num_true, 1.0, 0.0).astype(np.float32)
    bias = np.float32(bias_scale * rng.standard_normal())
    means = mean_scale * rng.standard_normal((num_clients, 1, dim), dtype=np.float32)

    def draw(count: int) -> ClientData:
        x = _correlated(rng, (num_clients, count, dim), correlation)
        x += means
        noise = noise_scale * rng.standard_normal((num_clients, count), dtype=np.float32)
        return from_stacked(x=x, y=x @ truth + bias + noise)

    def init(key):
        limit = (6 / (dim + 1)) ** 0.5
        kernel = jax.random.uniform(key, (dim,), jnp.float32, -limit, limit)
        return {"kernel": kernel, "bias": jnp.zeros((), jnp.float32)}

    def measures(params):
        return at_cuts(lambda cut: support_recovery(params["kernel"], truth, cut), cuts)

    train = draw(num_examples)
    return Problem(squared_error, train, draw(num_validation), init, measures)


def _correlated(rng, shape, correlation) -> np.ndarray:
    """Standard normal features with a correlation that decays geometrically with distance."""
    noise = rng.standard_normal(shape, dtype=np.float32)
    if correlation:
        fresh = np.float32((1 - correlation**2) ** 0.5)
        for column in range(1, shape[-1]):
            noise[..., column] *= fresh
            noise[..., column] += np.float32(correlation) * noise[..., column - 1]
    return noise
