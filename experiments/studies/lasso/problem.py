"""The penalty and its strength; centralised references, and Adam or LAMB on the server."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

import fcojax
from experiments.study import Config, from_config, mirror_descent, one_client, with_support
from fcojax import algorithms
from fcojax.algorithms import Work, takes
from fcojax.algorithms.base import Factory
from fcojax.problems import ClientData, Problem, lasso, population_loss
from fcojax.reference import optimum
from fcojax.transforms import Penalty, l1, monotone, named, on_subtree, precomposed


def penalty(config: Config) -> Penalty:
    """Return the l1 norm of the weights, or the cone of weights that decrease along the features.

    The true weights are one on the first features and zero on the others, so they decrease.
    """
    if config.get("penalty", "l1") == "l1":
        return on_subtree(l1(), named("kernel"))

    def reverse(leaves):
        return jax.tree.map(lambda leaf: leaf[::-1], leaves)

    return on_subtree(precomposed(monotone(axis=0), reverse, reverse), named("kernel"))


def problem(config: Config) -> Problem:
    """Return the planted regression of the config."""
    drawn = from_config(lasso, config, seed=config.data_seed)
    if config.get("penalty", "l1") != "l1":
        # Outside of the cone the objective is infinite, and a run that starts there has diverged.
        cone, init = penalty(config), drawn.init
        drawn = drawn._replace(init=lambda key: cone.prox(init(key), 1.0, 1.0))
    return with_support(drawn, config.cuts[0])


def strengths(config: Config) -> tuple[float, ...]:
    """Return the given strengths, or the candidate that the pooled solver chooses.

    With ``validation`` it is the candidate whose pooled minimiser has the lowest loss on the
    validation examples; with ``pattern`` it is the one whose minimiser has the best F1, and this
    loss decides ties.
    """
    if config.get("strength", "typed") == "typed":
        return config.penalty_scale
    data, psi = problem(config), penalty(config)
    validation = data.validation
    assert validation is not None  # num_validation is at least one

    def rank(strength: float) -> tuple[float, float]:
        solved = optimum(data, psi, strength, tolerance=1e-7).params
        params = jax.tree.map(jnp.asarray, solved)
        loss = float(population_loss(data.loss, params, validation))
        pattern = config.strength == "pattern"
        return (-float(data.measures(params)["f1"]) if pattern else 0.0), loss

    return (min(config.candidates, key=rank),)


def _pooled(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return the pooled data as one client: the same number of steps, batches of a whole cohort."""
    batch_size = config.batch_size and config.batch_size * config.cohort_size
    return one_client(problem), fcojax.local_steps(config.num_steps, batch_size)


def _full_batch(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return one client that takes one step on all examples."""
    return one_client(problem), fcojax.local_steps(1)


def _optimised(plain: Factory, factory: Any, server: optax.GradientTransformation) -> Factory:
    @takes(plain.Hparams, *plain.geometry)
    def optimised(loss, mirror):
        return factory(loss, mirror, server=server)

    return optimised


PLANS = {"prox_gd": _full_batch, "mirror_descent": _pooled, "dual_averaging": _pooled}
METHODS = {
    "prox_gd": algorithms.fed_mid_osp,
    "mirror_descent": mirror_descent,
    "dual_averaging": algorithms.fed_dual_avg,
}
# Optax's defaults: the source's code can have these two, and does not give their values.
for _name in ("fed_mid", "fed_dual_avg"):
    _plain, _factory = getattr(algorithms, _name), getattr(algorithms, f"{_name}_opt")
    METHODS[f"{_name}_adam"] = _optimised(_plain, _factory, optax.adam(1.0))
    METHODS[f"{_name}_lamb"] = _optimised(_plain, _factory, optax.lamb(1.0))
