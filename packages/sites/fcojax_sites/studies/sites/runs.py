"""The local lassos, the pooled optimum and the runs of both methods on one problem, as sweeps."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax.algorithms import Algorithm, fed_dual_avg
from fcojax.experiments import Config, observe_model
from fcojax.problems import ClientData
from fcojax.transforms import euclidean, l1
from fcojax_sites.studies.sites.averaged_descent import (
    Strength,
    averaged_coordinate_descent,
    lasso_path,
)
from fcojax_sites.studies.sites.problem import Moments, Sites, moment_loss

METHODS = {"fed_dual_avg": "FedDualAvg", "averaged_cd": "averaged descent"}


class Choice(NamedTuple):
    """The common strength, a weighted mean of the sites' own strengths, and how it was chosen.

    Attributes:
      strength: the weighted mean of the sites' strengths.
      places: the index of each site's strength with the lowest validation error; 0 is the largest.
      duality_gap: the largest gap of the local lassos, as a share of the mean squared label.
    """

    strength: float
    places: list[int]
    duality_gap: float


def common_strength(config: Config, sites: Sites, device: Any) -> Choice:
    """Return the strength for both methods, from each site's own lassos and validation rows."""
    strengths, places, gaps = [], [], []
    for train, validation in zip(sites.train, sites.validation, strict=True):
        top = np.abs(train.cross).max()
        grid = np.geomspace(top, config.least_strength * top, config.num_strengths)
        models = _lassos(config, train, grid, config.path_tolerance, device)
        place = int(validation.loss(models).argmin())
        gaps.append(train.duality_gap(models, grid).max() / train.energy)
        strengths.append(grid[place])
        places.append(place)
    return Choice(float(sites.weights @ strengths), places, float(max(gaps)))


def optimum(config: Config, sites: Sites, strength: float, device: Any) -> np.ndarray:
    """Return the pooled lasso."""
    return _lassos(config, sites.pooled, np.array([strength]), config.optimum_tolerance, device)[0]


def models(
    config: Config, sites: Sites, strength: float, method: str, num_steps: int, device: Any
) -> np.ndarray:
    """Return the models after each of ``config.num_rounds``, axes [rates, evaluations, dim]."""
    if method == "averaged_cd":
        algorithm = averaged_coordinate_descent()
        grid = fcojax.grid.product(Strength, penalty_scale=[strength])
    else:
        algorithm = fed_dual_avg(moment_loss, euclidean(l1()))
        rates = [share / sites.smoothness for share in config.rate_shares]
        grid = fcojax.grid.product(fed_dual_avg.Hparams, client_lr=rates, penalty_scale=[strength])
    every = math.gcd(*config.num_rounds)
    indices = np.array(config.num_rounds) // every - 1
    data = jax.device_put(sites.clients, device)
    return _over_rounds(algorithm, grid, data, num_steps, max(config.num_rounds), every)[:, indices]


def _lassos(
    config: Config, train: Moments, strengths: np.ndarray, tolerance: float, device: Any
) -> np.ndarray:
    """Return the lassos with these moments, axes [strengths, dim]."""
    given = jax.device_put((*train, strengths), device)
    found = lasso_path(*given, tolerance=tolerance, max_sweeps=config.max_sweeps)
    return np.asarray(found)


def _over_rounds(
    algorithm: Algorithm, grid: Any, data: ClientData, num_steps: int, num_rounds: int, every: int
) -> np.ndarray:
    """Return the model at every evaluation, axes [points, evaluations, dim]."""
    key, plan = jax.random.key(0)[None], fcojax.local_steps(num_steps)
    start = jnp.zeros(data.examples["cross"].shape[1], data.examples["cross"].dtype)
    state = fcojax.start(algorithm, grid, start, data, key, plan)
    _, history = fcojax.advance(
        algorithm,
        grid,
        state,
        data,
        plan,
        num_rounds=num_rounds,
        eval_every=every,
        observe=observe_model,
    )
    return np.asarray(history["model"][:, 0])
