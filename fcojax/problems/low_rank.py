r"""Matrix regression with a planted low-rank matrix, for the nuclear norm.

Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, section 5.2.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import validated
from fcojax.problems.clients import ClientData, from_stacked
from fcojax.problems.measures import at_cuts, rank
from fcojax.problems.problem import Problem
from fcojax.types import Array, Count, NonNegative


def matrix_squared_error(params, rows) -> Array:
    """Return ``(<x, kernel> + bias - y)^2`` for each row, without the factor 1/2."""
    flat = rows["x"].reshape(rows["x"].shape[0], -1)
    return (flat @ params["kernel"].reshape(-1) + params["bias"] - rows["y"]) ** 2


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
    seed: int = 0,
) -> Problem:
    r"""Regression on a matrix with ones on the first ``true_rank`` diagonal entries, else zeros.

    Client m draws matrices :math:`X = \mu_m + \Delta` with the entries of :math:`\mu_m` from
    :math:`N(0, s^2)`, fixed, and those of :math:`\Delta` from N(0, 1), and observes
    :math:`y = \langle X, W \rangle + b + \varepsilon`. The bias has no penalty.

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
      cuts: magnitudes above which a singular value counts; the measure at the first is named
        ``rank``, those at others have the cut in their name.
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
    if true_rank > min(shape):
        raise ValueError(f"true_rank is {true_rank}; pass at most {min(shape)} for shape {shape}.")
    rng = np.random.default_rng(seed)
    truth = np.zeros(shape, np.float32)
    np.fill_diagonal(truth[:true_rank, :true_rank], 1.0)
    bias = np.float32(bias_scale * rng.standard_normal())
    means = mean_scale * rng.standard_normal((num_clients, 1, *shape), dtype=np.float32)

    def draw(count: int) -> ClientData:
        x = rng.standard_normal((num_clients, count, *shape), dtype=np.float32)
        x = (x + means.astype(np.float32)).reshape(-1, *shape)
        noise = noise_scale * rng.standard_normal(x.shape[0], dtype=np.float32)
        y = np.tensordot(x, truth) + bias + noise
        return from_stacked(
            x=x.reshape(num_clients, count, *shape), y=y.reshape(num_clients, count)
        )

    def init(key):
        limit = (6 / (truth.size + 1)) ** 0.5
        kernel = jax.random.uniform(key, shape, jnp.float32, -limit, limit)
        return {"kernel": kernel, "bias": jnp.zeros((), jnp.float32)}

    def measures(params):
        kernel = params["kernel"]
        error = jnp.linalg.norm(kernel - jnp.asarray(truth, kernel.dtype))
        return at_cuts(lambda cut: rank(kernel, cut), cuts) | {"error_fro": error}

    train = draw(num_examples)
    return Problem(matrix_squared_error, train, draw(num_validation), init, measures)
