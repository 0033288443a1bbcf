"""Runs of one method: its grid, its rounds and the floats that it sends."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.studies.compare.methods import METHODS
from experiments.studies.compare.problem import PENALTY, Task
from experiments.study import Config
from fcojax.algorithms import Algorithm
from fcojax.problems import factored_loss
from fcojax.types import Array


def points(config: Config, task: Task, name: str, factors: Sequence[float]) -> Any:
    """Return the grid of a method, with step sizes as multiples of the safe one."""
    method, safe = METHODS[name], 1 / task.smoothness
    if method.tuned == "pull":
        radius = float(np.abs(task.optimum).sum())  # of the ball on which the optimum lies
        pulls = [factor * task.least_curvature for factor in factors]
        return fcojax.grid.product(method.hparams, pull_scale=pulls, penalty_scale=[radius])
    if method.tuned == "round" and not method.one_step:
        safe /= task.num_steps
    steps = [factor * safe for factor in factors]
    fields: dict[str, Any] = {"penalty_scale": task.scale} | method.fixed(
        task.smoothness, task.least_curvature
    )
    if method.tuned == "prox":
        fields["prox_step"] = steps
        fields["client_lr"] = [1 / (task.smoothness + 1 / eta) for eta in steps]
        whole = {k: v if isinstance(v, list) else [v] * len(steps) for k, v in fields.items()}
        return fcojax.grid.zipped(method.hparams, **whole)
    fields["client_lr"] = steps
    if "server_lr" in method.hparams._fields:
        fields["server_lr"] = list(config.server_lr) if len(factors) > 1 else [1.0]
    whole = {k: v if isinstance(v, list) else [v] for k, v in fields.items()}
    return fcojax.grid.product(method.hparams, **whole)


def run(
    config: Config, task: Task, name: str, grid: Any, num_rounds: int, eval_every: int
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the history, and the cumulative floats up and down, axes [points, seeds, rounds]."""
    method, algorithm, start = METHODS[name], _build(name), jnp.zeros(config.dim)
    random = method.half or name in ("skipping", "fed_dr_late")
    keys = jax.vmap(jax.random.key)(jnp.asarray(config.seeds if random else config.seeds[:1]))
    work = fcojax.local_steps(1 if method.one_step else task.num_steps)
    cohort = (
        fcojax.uniform_cohort(cohort_size=config.num_clients // 2)
        if method.half
        else fcojax.everyone()
    )
    _, history = fcojax.sweep(
        algorithm, grid, start, task.data, keys, fcojax.Plan(work, cohort), num_rounds=num_rounds,
        eval_every=eval_every, observe=_observe, context=jnp.asarray(task.optimum),
    )  # fmt: skip
    history = jax.tree.map(np.asarray, history)
    sent = {
        way: np.cumsum(history[f"bytes_{way}"], axis=-1) / start.itemsize for way in ("up", "down")
    }
    return history, sent


def _build(name: str) -> Algorithm:
    return METHODS[name].build(factored_loss, PENALTY)


def _observe(hparams: Any, model: Array, optimum: Array) -> dict[str, Array]:
    return {
        "distance": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum),
        "nonzeros": jnp.sum(model != 0),
    }
