"""Runs one method: its grid, its rounds and the floats that it sends."""

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.studies.compare.methods import METHODS
from experiments.studies.compare.problem import PENALTY
from fcojax import algorithms
from fcojax.problems import factored_loss


def points(config, task, name, factors):
    """A method's grid, with step sizes as multiples of the safe one."""
    method = METHODS[name]
    if not method.splits:
        steps = 1 if method.one_step else task.num_steps
        rates = [factor / (steps * task.smoothness) for factor in factors]
        return fcojax.product(
            algorithms.fed_mid.Hparams, client_lr=rates, penalty_scale=[task.scale],
            server_lr=config.server_lr if len(factors) > 1 else [1.0],
        )  # fmt: skip
    fields = {"prox_step": [factor / task.smoothness for factor in factors]}
    fields["client_lr"] = [1 / (task.smoothness + 1 / eta) for eta in fields["prox_step"]]
    fields["penalty_scale"] = [task.scale] * len(factors)
    if method.key == "fed_pd":
        fields["skip_probability"] = [method.skip_probability] * len(factors)
    return fcojax.zipped(getattr(algorithms, method.key).Hparams, **fields)


def run(config, task, name, grid, num_rounds, eval_every):
    """Distance and nonzeros over the rounds, and the floats sent so far, both ways."""
    method, algorithm, start = METHODS[name], _build(name), jnp.zeros(config.dim)
    lucky = method.half or method.skip_probability > 0
    keys = jax.vmap(jax.random.key)(jnp.asarray(config.seeds if lucky else config.seeds[:1]))
    work = fcojax.local_steps(1 if method.one_step else task.num_steps)
    cohort = fcojax.uniform_cohort(config.num_clients // 2) if method.half else fcojax.everyone()
    _, history = fcojax.sweep(
        algorithm, grid, start, task.data, keys, fcojax.Plan(work, cohort), num_rounds=num_rounds,
        eval_every=eval_every, observe=_look, context=jnp.asarray(task.optimum),
    )  # fmt: skip
    history = jax.tree.map(np.asarray, history)
    both_ways = history["bytes_up"] + history["bytes_down"]
    return history, np.cumsum(both_ways, axis=-1) / start.itemsize


def _build(name):
    return METHODS[name].build(factored_loss, PENALTY)


def _look(hparams, model, optimum):
    return {
        "distance": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum),
        "nonzeros": jnp.sum(model != 0),
    }
