"""A sparse regression of three hospitals, each given by its second moments."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from scipy.linalg import eigh

from experiments.study import Config
from fcojax.problems import ClientData, from_rows
from fcojax.types import Array

DESIGNS = ("independent", "AR(1)", "block")


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
        """Return a bound on each model's gap to the lasso's optimum, by a feasible dual point."""
        slopes = models @ self.gram - self.cross
        shrink = np.minimum(1.0, strength / np.abs(slopes).max(axis=-1))
        left = np.einsum("...i,...i->...", slopes - self.cross, models) + self.energy
        along = self.energy - models @ self.cross
        dual = shrink * along - shrink**2 * left / 2
        return self.loss(models) + strength * np.abs(models).sum(axis=-1) - dual


class Sites(NamedTuple):
    """One random problem.

    Attributes:
      truth: the true weights.
      noise: the variance of the noise, and of the signal.
      clients: the sites, one example each, in float32.
      train: the moments of all training rows.
      validation: the moments of all validation rows.
      smoothness: the largest eigenvalue of any site's Hessian.
      scale_max: the smallest strength at which zero is the pooled optimum.
    """

    truth: np.ndarray
    noise: float
    clients: ClientData
    train: Moments
    validation: Moments
    smoothness: float
    scale_max: float


def moments(x: np.ndarray, y: np.ndarray) -> Moments:
    """Return the second moments of some rows."""
    num = len(y)
    return Moments(x.T @ x / num, x.T @ y / num, float(y @ y / num))


def draw(config: Config, design: str, seed: int) -> Sites:
    """Return the sites of one design and seed; all rows have one distribution."""
    rng = np.random.default_rng([config.data_seed, config.designs.index(design), seed])
    truth = np.zeros(config.dim)
    support = rng.choice(config.dim, config.num_true, replace=False)
    low, high = config.magnitudes
    sizes = rng.uniform(low, high, config.num_true)
    truth[support] = sizes * rng.choice([-1.0, 1.0], config.num_true)
    noise = float(truth @ covariance(config, design) @ truth)
    parts = []
    for rows, held_out in zip(config.rows, config.held_out, strict=True):
        x = _features(config, design, rng.standard_normal((rows, config.dim)), rng)
        y = x @ truth + noise**0.5 * rng.standard_normal(rows)
        parts.append([(x[held_out:], y[held_out:]), (x[:held_out], y[:held_out])])
    train, validation = (
        moments(*(np.concatenate(blocks) for blocks in zip(*part, strict=True)))
        for part in zip(*parts, strict=True)
    )
    own = [moments(*part[0]) for part in parts]
    weights = [len(part[0][1]) for part in parts]
    smoothness = max(_largest_eigenvalue(*part[0]) for part in parts)
    scale_max = float(np.abs(train.cross).max())
    return Sites(truth, noise, clients(own, weights), train, validation, smoothness, scale_max)


def clients(sites: list[Moments], weights: list[int], dtype: type = np.float32) -> ClientData:
    """Return sites as clients with one example each, the moments."""
    fields = {
        name: np.stack([np.asarray(getattr(site, name), dtype) for site in sites])
        for name in Moments._fields
    }
    return from_rows(fields, [1] * len(sites), np.asarray(weights, dtype))


def moment_loss(w: Array, rows: Mapping[str, jax.Array]) -> Array:
    """Return half the mean squared error of each client, differentiable once.

    The gradient takes one product, as the moments are symmetric; second derivatives are wrong.

    Example:
      >>> import jax.numpy as jnp
      >>> rows = {"gram": jnp.eye(2)[None], "cross": jnp.ones((1, 2)), "energy": jnp.ones(1)}
      >>> jax.grad(lambda w: moment_loss(w, rows)[0])(jnp.array([3.0, 1.0])).tolist()
      [2.0, 0.0]
    """
    product = jax.lax.stop_gradient(rows["gram"] @ w)
    bend = jax.lax.stop_gradient(product @ w) / 2
    return (product - rows["cross"]) @ w - bend + rows["energy"] / 2


def covariance(config: Config, design: str) -> np.ndarray:
    """Return the covariance matrix of the features; all variances are one."""
    place = np.arange(config.dim)
    if design == "AR(1)":
        return config.ar_correlation ** np.abs(place[:, None] - place)
    if design == "block":
        together = place[:, None] // config.block_size == place // config.block_size
        return np.where(together, config.block_correlation, 0.0) + np.diag(
            np.full(config.dim, 1 - config.block_correlation)
        )
    return np.eye(config.dim)


def _features(
    config: Config, design: str, fresh: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return rows with that covariance, made of independent normal ones."""
    if design == "AR(1)":
        share = config.ar_correlation
        for column in range(1, config.dim):
            fresh[:, column] *= (1 - share**2) ** 0.5
            fresh[:, column] += share * fresh[:, column - 1]
    if design == "block":
        share = config.block_correlation
        shared = rng.standard_normal((len(fresh), -(-config.dim // config.block_size)))
        shared = np.repeat(shared, config.block_size, axis=1)[:, : config.dim]
        return share**0.5 * shared + (1 - share) ** 0.5 * fresh
    return fresh


def _largest_eigenvalue(x: np.ndarray, y: np.ndarray) -> float:
    """Return that of the rows' Hessian, from the smaller of the two Gram matrices."""
    gram = x @ x.T if len(x) < x.shape[1] else x.T @ x
    last = len(gram) - 1
    return float(eigh(gram, eigvals_only=True, subset_by_index=[last, last])[0] / len(y))
