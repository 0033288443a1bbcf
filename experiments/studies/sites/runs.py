"""Runs of both methods on one problem, and the pooled optimum, each a sweep."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.studies.sites.averaged_descent import Strength, averaged_coordinate_descent
from experiments.studies.sites.problem import Sites, clients, moment_loss
from experiments.study import Config, observe_model
from fcojax.algorithms import Algorithm, fed_dual_avg
from fcojax.problems import ClientData
from fcojax.transforms import euclidean, l1

METHODS = {"fed_dual_avg": "FedDualAvg", "averaged_cd": "averaged CD"}


def points(config: Config, sites: Sites, method: str) -> tuple[Any, list[tuple]]:
    """Return the grid of a method, and its pairs (rate, strength) as shares."""
    shares = strength_shares(config)
    strengths = [share * sites.scale_max for share in shares]
    if method == "averaged_cd":
        grid = fcojax.grid.product(Strength, penalty_scale=strengths)
        return grid, [(None, share) for share in shares]
    rates = [share / sites.smoothness for share in config.rate_shares]
    grid = fcojax.grid.product(fed_dual_avg.Hparams, client_lr=rates, penalty_scale=strengths)
    return grid, [(rate, share) for rate in config.rate_shares for share in shares]


def strength_shares(config: Config) -> list[float]:
    """Return the strengths as shares of the smallest one whose pooled optimum is zero."""
    return np.geomspace(1.0, config.least_strength, config.num_strengths).tolist()


def models(config: Config, sites: Sites, method: str, num_steps: int, device: Any) -> np.ndarray:
    """Return the models after each of ``config.num_rounds``, axes [points, evaluations, dim]."""
    if method == "averaged_cd":
        algorithm = averaged_coordinate_descent()
    else:
        algorithm = fed_dual_avg(moment_loss, euclidean(l1()))
    grid, _ = points(config, sites, method)
    every = math.gcd(*config.num_rounds)
    indices = np.array(config.num_rounds) // every - 1
    data = jax.device_put(sites.clients, device)
    found = _models_over_rounds(algorithm, grid, data, num_steps, max(config.num_rounds), every)
    return found[:, indices].astype(float)


def optimum(config: Config, sites: Sites, device: Any) -> np.ndarray:
    """Return the limits of pooled coordinate descent, in float64, for every strength."""
    with jax.enable_x64(True):
        data = jax.device_put(clients([sites.train], [1], np.float64), device)
        grid, _ = points(config, sites, "averaged_cd")
        algorithm, sweeps = averaged_coordinate_descent(), config.optimum_sweeps
        return _models_over_rounds(algorithm, grid, data, sweeps, 1, 1)[:, -1]


def _models_over_rounds(
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
