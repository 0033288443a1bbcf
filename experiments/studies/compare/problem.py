"""Lassos and group lassos: clients with different Hessians, and with one shared Hessian."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row
from experiments.studies.shared import Task
from experiments.study import Config
from fcojax.check.population import regression_clients
from fcojax.problems import factored, factored_loss, population_loss
from fcojax.problems.least_squares import half_squared_error
from fcojax.reference import fista
from fcojax.transforms import group_l2, l1
from fcojax.types import Array


def lasso(config: Config, problem: str) -> tuple[Task, Row]:
    r"""Least squares, :math:`|A_m w - b_m|^2 / (2 n)`, with an l1 norm or a group norm.

    The clients are drawn as in ``fcojax.check``. They differ in their true weights and, in the
    problems ``own``, in the axes of their covariance.
    """
    own, start = config[problem], jnp.zeros(config.dim)
    clients = regression_clients(
        np.random.default_rng(config.data_seed),
        (config.num_clients, own.num_examples, config.dim),
        spectrum=tuple(own.spectrum),
        num_true=config.num_true,
        spread=own.spread,
        own_axes=problem.startswith("own"),
    )
    data = factored(half_squared_error, fcojax.from_clients(clients), start)
    penalty = l1()
    if problem.endswith("groups"):
        penalty = group_l2(labels=np.arange(config.dim, dtype=np.int32) // config.group_size)
    features, targets = (np.stack([client[name] for client in clients]) for name in "xy")
    objective = functools.partial(population_loss, factored_loss)
    found = fista(objective, penalty, own.scale, start, data, tolerance=1e-13)
    optimum = np.asarray(found.params)
    errors = np.einsum("mni,i->mn", features, optimum) - targets
    gradients = np.einsum("mni,mn->mi", features, errors) / own.num_examples
    apart = gradients - gradients.mean(axis=0)
    spectrum = np.linalg.eigvalsh(np.einsum("mni,mnj->ij", features, features) / targets.size)
    facts = {
        "num_steps": own.num_steps,
        "largest_smoothness": float(data.examples.curvatures.max()),
        "smoothness": float(spectrum[-1]),
        "strong_convexity": float(spectrum[0]),
        "nonzeros": int(np.count_nonzero(optimum)),
        "gradients_apart": float(np.sqrt((apart**2).sum(axis=1).mean())),
        "residual": float(found.residual),
    }
    given = factored_loss, data, penalty, own.scale, start, fcojax.local_steps(own.num_steps)
    curvatures = facts["largest_smoothness"], facts["strong_convexity"]
    return Task(*given, _to_optimum, *curvatures, jnp.asarray(optimum)), facts


def _to_optimum(hparams: Any, model: Array, optimum: Array) -> dict[str, Array]:
    found, true = model != 0, optimum != 0
    return {
        "distance": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum),
        "nonzeros": jnp.sum(found),
        "support": found,
        "f1": 2 * jnp.sum(found & true) / jnp.maximum(jnp.sum(found) + jnp.sum(true), 1),
    }
