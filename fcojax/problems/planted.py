r"""Regression with planted weights and a feature mean per client: sparse, or of low rank.

The synthetic problems of Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021,
sections 5.1 and 5.2: squared error without the factor 1/2, and an unpenalised bias.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import at_most, validated
from fcojax.problems.clients import ClientData, from_stacked
from fcojax.problems.measures import at_cuts, rank, support_recovery
from fcojax.problems.problem import Problem
from fcojax.types import Array, Count, NonNegative, Params, PyTree, Seed


def squared_error(params: Params, rows: PyTree) -> Array:
    """Return ``(<x, kernel> + bias - y)^2`` for each row."""
    flat = rows["x"].reshape(rows["x"].shape[0], -1)
    return (flat @ params["kernel"].reshape(-1) + params["bias"] - rows["y"]) ** 2


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
    seed: Seed = 0,
) -> Problem:
    r"""Linear regression with true weights of one on the first ``num_true`` features, else zero.

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
      cuts: magnitudes above which a weight counts as found; all but the first are in the measures'
        names, which are ``f1``, ``density``, ``precision`` and ``recall``.
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
    truth = np.where(np.arange(dim) < num_true, 1.0, 0.0).astype(np.float32)

    def measures(kernel):
        return at_cuts(lambda cut: support_recovery(kernel, truth, cut), cuts)

    return _planted(
        truth,
        measures,
        num_clients,
        (num_examples, num_validation),
        (mean_scale, bias_scale, noise_scale),
        seed,
        correlation,
    )


@validated
def low_rank(
    *,
    num_clients: Count = 64,
    num_examples: Count = 128,
    shape: tuple[int, int] = (32, 32),
    true_rank: Count = 16,
    mean_scale: NonNegative = 0.1,
    bias_scale: NonNegative = 1.0,
    noise_scale: NonNegative = 1.0,
    num_validation: Count = 32,
    cuts: Sequence[float] = (1e-2, 1e-4),
    seed: Seed = 0,
) -> Problem:
    r"""Regression on a matrix with ones on the first ``true_rank`` diagonal entries, else zeros.

    Client m draws matrices :math:`X = \mu_m + \Delta` with fixed entries of :math:`\mu_m` from
    :math:`N(0, s^2)` and entries of :math:`\Delta` from N(0, 1), and observes :math:`y = \langle X,
    W \rangle + b + \varepsilon`. The bias is not penalised.

    The measures are the ``rank`` at each cut and ``error_fro``, the distance of the kernel to W.

    Args:
      num_clients: number of clients M.
      num_examples: training examples per client.
      shape: rows and columns of W.
      true_rank: rank of W.
      mean_scale: s, the standard deviation of the entries of the client means.
      bias_scale: standard deviation of the true bias.
      noise_scale: standard deviation of the observation noise.
      num_validation: validation examples per client.
      cuts: magnitudes above which a singular value counts; all but the first appear in the names.
      seed: seed of the data.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> problem = fcojax.problems.low_rank(
      ...     num_clients=2, num_examples=4, shape=(3, 3), true_rank=2)
      >>> truth = {"kernel": jnp.diag(jnp.array([1.0, 1.0, 0.0])), "bias": jnp.array(0.0)}
      >>> measures = problem.measures(truth)
      >>> int(measures["rank"]), float(measures["error_fro"])
      (2, 0.0)
    """
    at_most("true_rank", true_rank, min(shape), f" for shape {shape}")
    truth = np.zeros(shape, np.float32)
    np.fill_diagonal(truth[:true_rank, :true_rank], 1.0)

    def measures(kernel):
        error = jnp.linalg.norm(kernel - jnp.asarray(truth, kernel.dtype))
        return at_cuts(lambda cut: rank(kernel, cut), cuts) | {"error_fro": error}

    return _planted(
        truth,
        measures,
        num_clients,
        (num_examples, num_validation),
        (mean_scale, bias_scale, noise_scale),
        seed,
    )


def _planted(
    truth: np.ndarray,
    measures: Callable[[Array], dict[str, Array]],
    num_clients: int,
    counts: tuple[int, int],
    scales: tuple[float, float, float],
    seed: int,
    correlation: float = 0.0,
) -> Problem:
    """Draw the clients, with ``scales`` of their means, the bias and the noise."""
    mean_scale, bias_scale, noise_scale = scales
    rng = np.random.default_rng(seed)
    bias = np.float32(bias_scale * rng.standard_normal())
    means = mean_scale * rng.standard_normal((num_clients, 1, *truth.shape), dtype=np.float32)

    def draw(count: int) -> ClientData:
        x = _correlated(rng, (num_clients, count, *truth.shape), correlation)
        x += means
        noise = noise_scale * rng.standard_normal((num_clients, count), dtype=np.float32)
        return from_stacked(x=x, y=np.tensordot(x, truth, truth.ndim) + bias + noise)

    def init(key):
        limit = (6 / (truth.size + 1)) ** 0.5
        kernel = jax.random.uniform(key, truth.shape, jnp.float32, -limit, limit)
        return {"kernel": kernel, "bias": jnp.zeros((), jnp.float32)}

    train, validation = map(draw, counts)
    return Problem(
        squared_error, train, validation, init, lambda params: measures(params["kernel"])
    )


def _correlated(rng, shape, correlation) -> np.ndarray:
    """Standard normal features with a correlation that decays geometrically with distance."""
    noise = rng.standard_normal(shape, dtype=np.float32)
    if correlation:
        fresh = np.float32((1 - correlation**2) ** 0.5)
        for column in range(1, shape[-1]):
            noise[..., column] *= fresh
            noise[..., column] += np.float32(correlation) * noise[..., column - 1]
    return noise
