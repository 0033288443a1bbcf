r"""The clients on which algorithms are checked: quadratics and a heterogeneous lasso."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fcojax import ClientData, from_clients
from fcojax.problems import factored, factored_loss, population_loss
from fcojax.problems.least_squares import half_squared_error
from fcojax.reference import fista
from fcojax.transforms import Penalty
from fcojax.types import Array


def quadratic(w, rows) -> Array:
    """Return f(w) = w'Aw/2 - c'w for each row."""
    return 0.5 * jnp.einsum("i,nij,j->n", w, rows["A"], w) - rows["c"] @ w


@functools.cache
def quadratic_clients(sizes=(5, 2, 7, 3, 6), dim=4, seed=0, low=0.4, high=1.6) -> list[dict]:
    """Return heterogeneous quadratics with curvatures between ``low`` and ``high``."""
    rng = np.random.default_rng(seed)

    def curvature():
        axes = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
        return (axes * rng.uniform(low, high, dim)) @ axes.T

    return [
        {"A": np.stack([curvature() for _ in range(n)]), "c": rng.standard_normal((n, dim))}
        for n in sizes
    ]


def regression_clients(
    rng: np.random.Generator,
    sizes: tuple[int, int, int],
    *,
    spectrum: tuple[float, float] = (0.05, 8.0),
    num_true: int = 7,
    spread: float = 0.6,
    own_axes: bool = True,
) -> list[dict]:
    """Return regression clients that differ in their covariances and true weights.

    The covariance of the features ``x`` has a geometric spectrum. The targets ``y`` follow sparse
    true weights plus a dense deviation of each client.

    Args:
      rng: the random generator.
      sizes: the numbers of clients, examples of each, and features.
      spectrum: the smallest and the largest variance along a principal axis.
      num_true: nonzero entries of the true weights.
      spread: standard deviation of the deviations.
      own_axes: whether each client has its own principal axes.
    """
    num_clients, _, dim = sizes
    q = np.linalg.qr(rng.standard_normal((num_clients if own_axes else 1, dim, dim)))[0]
    deviations = np.sqrt(np.geomspace(*spectrum, dim))
    features = rng.standard_normal(sizes) @ (q * deviations).swapaxes(1, 2)
    truth = np.where(np.arange(dim) < num_true, rng.choice([-2.0, 2.0], dim), 0.0)
    truths = truth + spread * rng.standard_normal((num_clients, dim))
    targets = np.einsum("mni,mi->mn", features, truths) + 0.1 * rng.standard_normal(sizes[:2])
    return [{"x": x, "y": y} for x, y in zip(features, targets, strict=True)]


class Task(NamedTuple):
    """A problem with a known minimiser.

    Attributes:
      data: the clients, with factored examples for ``factored_loss``.
      scale: the strength of the penalty.
      smoothness: the largest curvature of any client.
      optimum: the minimiser.
    """

    data: ClientData
    scale: float
    smoothness: float
    optimum: np.ndarray


_OBJECTIVE = functools.partial(population_loss, factored_loss)


@functools.cache
def heterogeneous_lasso(penalty: Penalty, scale: float = 0.8, seed: int = 0) -> Task:
    """Return eight ``regression_clients`` with 40 examples of 20 features, and the minimiser."""
    clients = regression_clients(np.random.default_rng(seed), (8, 40, 20))
    start = jnp.zeros(20)
    data = factored(half_squared_error, from_clients(clients), start)
    tolerance = 1e-13 if start.dtype == jnp.float64 else 1e-6
    found = fista(_OBJECTIVE, penalty, scale, start, data, tolerance=tolerance)
    largest = float(data.examples.curvatures.max())
    return Task(data, scale, largest, np.asarray(found.params))
