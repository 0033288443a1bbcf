"""A sparse regression over three hospitals, each given by its second moments."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh

from fcojax import ClientData, from_rows
from fcojax.experiments import Config
from fcojax.types import Array

DESIGNS = ("independent", "correlated", "heterogeneous")


class Moments(NamedTuple):
    r"""The second moments of rows, which determine half the mean squared error, in float64.

    Attributes:
      gram: :math:`X^T X / n`.
      cross: :math:`X^T y / n`.
      energy: :math:`y^T y / n`.

    Example:
      >>> moments(np.eye(2), np.array([1.0, 3.0])).loss(np.zeros((4, 2))).tolist()
      [2.5, 2.5, 2.5, 2.5]
    """

    gram: np.ndarray
    cross: np.ndarray
    energy: float

    def loss(self, models: np.ndarray) -> np.ndarray:
        """Return half the mean squared error of each model, models along the last axis."""
        slopes = models @ self.gram - 2 * self.cross
        return (np.einsum("...i,...i->...", slopes, models) + self.energy) / 2

    def duality_gap(self, models: np.ndarray, strength: np.ndarray) -> np.ndarray:
        """Return a bound on each model's gap to the lasso's optimum, from a feasible dual point."""
        slopes = models @ self.gram - self.cross
        shrink = np.minimum(1.0, strength / np.abs(slopes).max(axis=-1))
        left = np.einsum("...i,...i->...", slopes - self.cross, models) + self.energy
        along = self.energy - models @ self.cross
        dual = shrink * along - shrink**2 * left / 2
        return self.loss(models) + strength * np.abs(models).sum(axis=-1) - dual

    def mapping(self, models: np.ndarray, strength: float) -> np.ndarray:
        """Return the largest entry of w - soft(w - gradient, strength), zero at the optimum."""
        moved = models - models @ self.gram + self.cross
        shrunk = np.sign(moved) * np.maximum(np.abs(moved) - strength, 0.0)
        return np.abs(models - shrunk).max(axis=-1)


class Sites(NamedTuple):
    """One random problem.

    Attributes:
      truth: the true weights.
      signal: the variance of the signal in the training rows of each site.
      deviations: the standard deviation of the noise at each site.
      train: the moments of the training rows of each site.
      validation: the moments of the validation rows of each site.
      weights: the weights of the sites, which sum to one.
      test: independent features and labels.
      smoothness: the largest eigenvalue of any site's Hessian.
    """

    truth: np.ndarray
    signal: np.ndarray
    deviations: np.ndarray
    train: list[Moments]
    validation: list[Moments]
    weights: np.ndarray
    test: tuple[np.ndarray, np.ndarray]
    smoothness: float

    @property
    def pooled(self) -> Moments:
        """The weighted mean of the sites' training moments, which defines the objective."""
        return _mean(self.train, self.weights)

    @property
    def pooled_validation(self) -> Moments:
        """The weighted mean of the sites' validation moments."""
        return _mean(self.validation, self.weights)

    @property
    def clients(self) -> ClientData:
        """The sites as clients."""
        return clients(self.train, self.weights)


def moments(x: np.ndarray, y: np.ndarray) -> Moments:
    """Return the second moments of some rows."""
    num = len(y)
    return Moments(x.T @ x / num, x.T @ y / num, float(y @ y / num))


def draw(config: Config, design: str, seed: int) -> Sites:
    """Return the sites of one design and seed."""
    rng = np.random.default_rng([config.data_seed, DESIGNS.index(design), seed])
    law = config.laws[design]
    truth = np.zeros(config.dim)
    support = rng.choice(config.dim, config.num_true, replace=False)
    low, high = config.magnitudes
    sizes = rng.uniform(low, high, config.num_true)
    truth[support] = sizes * rng.choice([-1.0, 1.0], config.num_true)
    train, validation, signal, deviations, curvatures = [], [], [], [], []
    for j, (rows, held_out) in enumerate(zip(config.rows, config.held_out, strict=True)):
        x, held = (
            law.scales[j] * autoregressive(rng, num, config.dim, law.correlations[j])
            for num in (rows, held_out)
        )
        signal.append(np.var(x @ truth))
        deviations.append(law.noises[j] * signal[-1] ** 0.5)
        labelled = [
            (part, part @ truth + deviations[-1] * rng.standard_normal(len(part)))
            for part in (x, held)
        ]
        train.append(moments(*labelled[0]))
        validation.append(moments(*labelled[1]))
        curvatures.append(_largest_eigenvalue(x))
    fresh = autoregressive(rng, config.num_test, config.dim, law.test_correlation)
    noise = np.mean(deviations) * rng.standard_normal(config.num_test)
    return Sites(
        truth,
        np.array(signal),
        np.array(deviations),
        train,
        validation,
        np.array(config.weights),
        (fresh, fresh @ truth + noise),
        max(curvatures),
    )


def clients(sites: Sequence[Moments], weights: ArrayLike) -> ClientData:
    """Return sites as clients with one example each, the moments."""
    fields = {
        name: np.stack([np.asarray(getattr(site, name)) for site in sites])
        for name in Moments._fields
    }
    return from_rows(fields, [1] * len(sites), np.asarray(weights, float))


def _mean(sites: Sequence[Moments], weights: np.ndarray) -> Moments:
    gram, cross, energy = (np.tensordot(weights, np.stack(f), 1) for f in zip(*sites, strict=True))
    return Moments(gram, cross, float(energy))


def moment_loss(w: Array, rows: Mapping[str, jax.Array]) -> Array:
    """Return half the mean squared error of each client, which is differentiable once.

    The gradient takes one product, because the moments are symmetric; second derivatives are wrong.

    Example:
      >>> import jax.numpy as jnp
      >>> rows = {"gram": jnp.eye(2)[None], "cross": jnp.ones((1, 2)), "energy": jnp.ones(1)}
      >>> jax.grad(lambda w: moment_loss(w, rows)[0])(jnp.array([3.0, 1.0])).tolist()
      [2.0, 0.0]
    """
    product = jax.lax.stop_gradient(rows["gram"] @ w)
    bend = jax.lax.stop_gradient(product @ w) / 2
    return (product - rows["cross"]) @ w - bend + rows["energy"] / 2


def autoregressive(rng: np.random.Generator, num: int, dim: int, correlation: float) -> np.ndarray:
    """Return normal rows of unit variance in which features i and j have correlation c^|i - j|."""
    x = rng.standard_normal((num, dim))
    for column in range(1, dim):
        x[:, column] *= (1 - correlation**2) ** 0.5
        x[:, column] += correlation * x[:, column - 1]
    return x


def _largest_eigenvalue(x: np.ndarray) -> float:
    """Return the largest eigenvalue of the rows' Hessian, from the smaller of the Gram matrices."""
    gram = x @ x.T if len(x) < x.shape[1] else x.T @ x
    last = len(gram) - 1
    return float(eigh(gram, eigvals_only=True, subset_by_index=[last, last])[0] / len(x))
