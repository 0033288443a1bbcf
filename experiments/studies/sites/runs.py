"""Both methods on one drawn problem, and the pooled optimum, each a sweep of the engine."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.studies.sites.averaged_descent import Strength, averaged_coordinate_descent
from experiments.studies.sites.problem import Sites, clients, moment_loss
from fcojax.algorithms import fed_dual_avg
from fcojax.problems import ClientData
from fcojax.transforms import euclidean, l1

METHODS = {"fed_dual_avg": "FedDualAvg", "averaged_cd": "averaged CD"}


def points(config, sites: Sites, method: str):
    """The grid of a method and, beside it, its (rate, strength) as shares."""
    shares = strength_shares(config)
    strengths = [share * sites.scale_max for share in shares]
    if method == "averaged_cd":
        grid = fcojax.product(Strength, penalty_scale=strengths)
        return grid, [(None, share) for share in shares]
    rates = [share / sites.smoothness for share in config.rate_shares]
    grid = fcojax.product(fed_dual_avg.Hparams, client_lr=rates, penalty_scale=strengths)
    return grid, [(rate, share) for rate in config.rate_shares for share in shares]


def strength_shares(config) -> list[float]:
    """Strengths as shares of the one that holds the pooled optimum at zero."""
    return np.geomspace(1.0, config.least_strength, config.num_strengths).tolist()


def models(config, sites: Sites, method: str, num_steps: int, device: Any) -> np.ndarray:
    """The models after each of ``config.num_rounds``, axes [points, looks, dim]."""
    if method == "averaged_cd":
        algorithm = averaged_coordinate_descent()
    else:
        algorithm = fed_dual_avg(moment_loss, euclidean(l1()))
    grid, _ = points(config, sites, method)
    every = math.gcd(*config.num_rounds)
    looks = np.array(config.num_rounds) // every - 1
    data = jax.device_put(sites.clients, device)
    found = _advanced(algorithm, grid, data, num_steps, max(config.num_rounds), every)
    return found[:, looks].astype(float)


def optimum(config, sites: Sites, device: Any) -> np.ndarray:
    """Where coordinate descent on the pooled rows ends, in float64, for every strength."""
    with jax.enable_x64(True):
        data = jax.device_put(clients([sites.train], [1], np.float64), device)
        grid, _ = points(config, sites, "averaged_cd")
        algorithm, sweeps = averaged_coordinate_descent(), config.optimum_sweeps
        return _advanced(algorithm, grid, data, sweeps, 1, 1)[:, -1]


def _advanced(algorithm, grid, data: ClientData, num_steps: int, num_rounds: int, every: int):
    """The model at every look, axes [points, looks, dim]."""
    key, plan = jax.random.key(0)[None], fcojax.local_steps(num_steps)
    start = jnp.zeros(data.examples["cross"].shape[1], data.examples["cross"].dtype)
    state = fcojax.start(algorithm, grid, start, data, key, plan)
    _, history = fcojax.advance(
        algorithm, grid, data, state, plan, num_rounds, eval_every=every, observe=_model
    )
    return np.asarray(history["model"][0])


def _model(hparams, model, context):
    return {"model": model}
