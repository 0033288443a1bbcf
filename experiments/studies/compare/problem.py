"""Lassos and group lassos: clients with different Hessians, and with one shared Hessian."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row
from experiments.study import Config
from fcojax.check.population import regression_clients
from fcojax.problems import factored, factored_loss, population_loss
from fcojax.problems.least_squares import half_squared_error
from fcojax.reference import fista
from fcojax.transforms import Penalty, group_l2, l1


class Task(NamedTuple):
    """One of the problems.

    Attributes:
      data: the clients, factored.
      penalty: psi.
      scale: the strength of the penalty.
      num_steps: K.
      smoothness: the largest curvature of any client, the unit of step sizes.
      least_curvature: the smallest curvature of the mean of the clients' losses.
      optimum: the minimiser.
    """

    data: fcojax.ClientData
    penalty: Penalty
    scale: float
    num_steps: int
    smoothness: float
    least_curvature: float
    optimum: np.ndarray


def lasso(config: Config, problem: str) -> tuple[Task, Row]:
    r"""Least squares, :math:`|A_m w - b_m|^2 / (2 n)`, with an l1 norm or a group norm.

    The clients are drawn as in ``fcojax.check``. They differ in their true weights and, in the
    problems ``own``, in the axes of their covariance.
    """
    own = config[problem]
    clients = regression_clients(
        np.random.default_rng(config.data_seed),
        (config.num_clients, own.num_examples, config.dim),
        spectrum=tuple(own.spectrum),
        num_true=config.num_true,
        spread=own.spread,
        own_axes=problem.startswith("own"),
    )
    data = factored(half_squared_error, fcojax.from_clients(clients), jnp.zeros(config.dim))
    penalty = l1()
    if problem.endswith("groups"):
        penalty = group_l2(labels=np.arange(config.dim, dtype=np.int32) // config.group_size)
    features, targets = (np.stack([client[name] for client in clients]) for name in "xy")
    objective = functools.partial(population_loss, factored_loss)
    found = fista(objective, penalty, own.scale, jnp.zeros(config.dim), data, tolerance=1e-13)
    optimum = np.asarray(found.params)
    errors = np.einsum("mni,i->mn", features, optimum) - targets
    gradients = np.einsum("mni,mn->mi", features, errors) / own.num_examples
    apart = gradients - gradients.mean(axis=0)
    hessian = np.einsum("mni,mnj->ij", features, features) / targets.size
    largest, spectrum = float(data.examples.curvatures.max()), np.linalg.eigvalsh(hessian)
    least = float(spectrum[0])
    return Task(data, penalty, own.scale, own.num_steps, largest, least, optimum), {
        "num_steps": own.num_steps,
        "largest_smoothness": largest,
        "smoothness": float(spectrum[-1]),
        "strong_convexity": least,
        "nonzeros": int(np.count_nonzero(optimum)),
        "gradients_apart": float(np.sqrt((apart**2).sum(axis=1).mean())),
        "residual": float(found.residual),
    }
