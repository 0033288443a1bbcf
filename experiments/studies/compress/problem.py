"""Least squares with an l1 norm on clients that differ in Hessians and true weights."""

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
from fcojax.transforms import l1

PENALTY = l1()
_OBJECTIVE = functools.partial(population_loss, factored_loss)


class Task(NamedTuple):
    """The problem.

    Attributes:
      data: the clients, factored.
      scale: the strength of the penalty.
      num_steps: K.
      smoothness: the largest curvature of any client, the unit of step sizes.
      optimum: the minimiser.
    """

    data: fcojax.ClientData
    scale: float
    num_steps: int
    smoothness: float
    optimum: np.ndarray


def lasso(config: Config) -> tuple[Task, Row]:
    """Return the problem, with its optimum, and facts about it."""
    own, rng = config.own, np.random.default_rng(config.data_seed)
    clients = regression_clients(
        rng, (config.num_clients, own.num_examples, config.dim), spectrum=tuple(own.spectrum),
        num_true=config.num_true, spread=own.spread, own_axes=True,
    )  # fmt: skip
    start = jnp.zeros(config.dim)
    data = factored(half_squared_error, fcojax.from_clients(clients), start)
    found = fista(_OBJECTIVE, PENALTY, own.scale, start, data, tolerance=1e-13)
    optimum, largest = np.asarray(found.params), float(data.examples.curvatures.max())
    facts = {
        "largest_smoothness": largest,
        "nonzeros": int(np.count_nonzero(optimum)),
        "residual": float(found.residual),
    }
    return Task(data, own.scale, own.num_steps, largest, optimum), facts
