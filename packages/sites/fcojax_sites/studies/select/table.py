"""Algorithms over grids of rates, on the user's table."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from fcojax.experiments import Config, Panel, Sweep, on_kernel
from fcojax.problems import Problem, population_loss
from fcojax.transforms import l1
from fcojax.types import Count, CountOrZero, Positive
from fcojax_sites.studies.select.problem import LOSSES, task

penalty = on_kernel(l1())


def problem(config: Config) -> Problem:
    """Return the problem in ``config.data``, read as ``select`` reads ``config.data_dir``."""
    return task(ConfigDict({**config, "data_dir": config.data, "by": "examples"})).problem


def strengths(config: Config) -> tuple[float, ...]:
    """Return the strengths, given as shares of the smallest one that selects nothing."""
    found, psi = problem(config), penalty(config)
    start = jax.tree.map(jnp.zeros_like, found.init(jax.random.key(0)))
    gradient = jax.grad(lambda params: population_loss(found.loss, params, found.train))(start)
    assert psi.scale_max is not None
    largest = float(psi.scale_max(gradient))
    return tuple(share * largest for share in config.strength)


EXPERIMENT = Sweep(
    title="Algorithms on a table",
    problem=problem,
    penalty=penalty,
    strengths=strengths,
    panels=(
        Panel("suboptimality", r"objective above its least, $\Phi - \Phi^*$", log=True),
        Panel("density", "share of nonzero coefficients"),
    ),
    notes="Features are scaled to mean 0 and variance 1 over all clients, and missing values are "
    "the mean.",
    keys={
        Literal[*(name for name in LOSSES if name != "cox")]: "loss",
        Count: "num_clients sizes dim",
        CountOrZero: "data_seed",
        Positive: "concentration strength",
        str: "data features target client names missing categories drop",
        Any: "positive_above",  # infinity if there is none
    },
)
