"""Rows and tables: every pair of a method and an uplink, at every step, and at its best."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, select
from experiments.studies.compress.problem import PENALTY, Task, lasso
from experiments.study import Config
from fcojax import algorithms, uploads
from fcojax.problems import factored_loss
from fcojax.transforms import euclidean
from fcojax.types import Array


class Method(NamedTuple):
    """A method of the study.

    Attributes:
      text: its name.
      build: ``() -> Algorithm``.
      feedback: the error feedback that fits its uploads.
      one_step: whether clients take one local step, and not K.
    """

    text: str
    build: Callable[[], Any]
    feedback: str
    one_step: bool = False


METHODS = {
    "fed_dual_avg": Method(
        "FedDualAvg", lambda: algorithms.fed_dual_avg(factored_loss, euclidean(PENALTY)), "ef21",
        one_step=True,
    ),
    "composite_fl": Method(
        "Composite FL", lambda: algorithms.composite_fl(factored_loss, PENALTY), "ef14"
    ),
    "scaffold": Method(
        "SCAFFOLD", lambda: algorithms.scaffold(factored_loss, PENALTY, prox="feedback"), "ef14"
    ),
}  # fmt: skip
WHOLE, ALONE = "whole", ", alone"


def names(config: Config) -> list[str]:
    """Return the uplinks by name; ``, alone`` marks those without feedback."""
    return [*config.uplinks, *(name + ALONE for name in config.alone)]


def study(config: Config) -> Iterator[Row]:
    """Yield the problem, the end of each step and, at the best, the curve."""
    task, facts = lasso(config)
    yield {"part": "problem"} | facts
    for method in config.methods:
        for name in names(config):
            yield from _pair(config, task, method, name)


def _pair(config: Config, task: Task, method: str, name: str) -> Iterator[Row]:
    history = _run(config, task, method, name)
    given = {"method": method, "uplink": name}
    rows = []
    for place, factor in enumerate(config.step_factors):
        distance, sent = (history[key][place] for key in ("distance", "bytes_up"))
        rows.append({"part": "point", **given, "step_factor": factor} | _ends(distance))
        for tolerance in config.tolerances:
            near = np.flatnonzero(distance <= tolerance)
            first = near[0] if near.size else None
            rows[-1][f"bytes to {tolerance:g}"] = math.inf if first is None else sent[first]
            rows[-1][f"rounds to {tolerance:g}"] = (
                math.inf if first is None else history["round"][first]
            )
    best = min(range(len(rows)), key=lambda place: _order(config, rows[place]))
    for place, row in enumerate(rows):
        yield row | {"best": place == best, "f1": float(history["f1"][place, -1])}
    for look, round_ in enumerate(history["round"]):
        yield {"part": "curve", **given, "round": int(round_)} | {
            key: float(history[key][best, look])
            for key in ("distance", "f1", "bytes_up", "bytes_down")
        }


def _ends(distance: np.ndarray) -> Row:
    """Return the distance at the end, infinite if it is not finite."""
    return {"distance": float(distance[-1]) if np.isfinite(distance[-1]) else math.inf}


def _order(config: Config, row: Row) -> tuple:
    """Return the sorting key of a step: bytes to the smallest tolerance, to the next, the end."""
    return (*(row[f"bytes to {near:g}"] for near in sorted(config.tolerances)), row["distance"])


def _run(config: Config, task: Task, method: str, name: str) -> dict[str, np.ndarray]:
    """Return what was observed and the bytes so far, [points, evaluations]."""
    chosen = METHODS[method]
    algorithm, num_steps = chosen.build(), 1 if chosen.one_step else task.num_steps
    rates = [factor / (num_steps * task.smoothness) for factor in config.step_factors]
    grid = fcojax.grid.product(
        algorithm.hparams_type, client_lr=rates, server_lr=[1.0], penalty_scale=[task.scale]
    )
    plan = fcojax.Plan(fcojax.local_steps(num_steps), uplink=_uplink(name, chosen.feedback))
    _, history = fcojax.sweep(
        algorithm, grid, jnp.zeros(config.dim), task.data, jax.random.key(config.seed)[None], plan,
        num_rounds=config.num_rounds, eval_every=config.eval_every, observe=_observe,
        context=jnp.asarray(task.optimum),
    )  # fmt: skip
    found = {key: np.asarray(values)[:, 0] for key, values in history.items() if key != "round"}
    so_far = {key: np.cumsum(found[key], axis=-1) for key in ("bytes_up", "bytes_down")}
    return found | so_far | {"round": np.arange(1, found["f1"].shape[1] + 1) * config.eval_every}


@functools.cache
def _uplink(name: str, feedback: str) -> Any:
    if name == WHOLE:
        return None
    remedy = "" if name.endswith(ALONE) else f",{feedback}"
    return uploads.from_text(name.removesuffix(ALONE) + remedy)


def _observe(hparams: Any, model: Array, optimum: Array) -> dict[str, Array]:
    found, true = model != 0, optimum != 0
    return {
        "distance": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum),
        "f1": 2 * jnp.sum(found & true) / jnp.maximum(jnp.sum(found) + jnp.sum(true), 1),
    }


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the best step of each pair, and how many times fewer bytes it sends than whole."""
    [facts] = select(rows, part="problem")
    table = []
    for method in config.methods:
        points = select(rows, part="point", method=method, best=True)
        whole = next((row for row in points if row["uplink"] == WHOLE), {})
        for row in points:
            entry = {
                "method": METHODS[method].text,
                "uplink": row["uplink"],
                "step, of 1 / (K L)": row["step_factor"],
            }
            for near in config.tolerances:
                sent, rounds = (row[f"{what} to {near:g}"] for what in ("bytes", "rounds"))
                entry[f"rounds to {near:g}"] = rounds
                entry[f"kB up to {near:g}"] = None if sent is None else sent / 1e3
                least = whole.get(f"bytes to {near:g}")
                entry[f"times fewer to {near:g}"] = least / sent if least and sent else None
            entry |= {"distance at the end": row["distance"], "F1 at the end": row["f1"]}
            table.append(entry)
    return {"problem": facts, "best": table}
