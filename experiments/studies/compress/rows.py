"""Rows and tables for each pair of a method and a codec, at all steps and at the best step."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.codecs import codec
from experiments.report.rows import Row, Summary, select
from experiments.studies.compress.problem import Kind, Task
from experiments.study import Config
from fcojax import algorithms, uploads
from fcojax.problems.losses import Loss
from fcojax.transforms import Penalty, euclidean


class Method(NamedTuple):
    """A method of the study.

    Attributes:
      text: its name.
      build: ``(loss, penalty) -> Algorithm``.
      feedback: the error feedback that fits its uploads.
      one_step: whether it is exact only with one local step; it then takes one, if L is known.
    """

    text: str
    build: Callable[[Loss, Penalty], Any]
    feedback: str
    one_step: bool = False


METHODS = {
    "fed_dual_avg": Method(
        "FedDualAvg",
        lambda loss, penalty: algorithms.fed_dual_avg(loss, euclidean(penalty)),
        "ef21",
        one_step=True,
    ),
    "composite_fl": Method("Composite FL", algorithms.composite_fl, "ef14"),
    "scaffold": Method("SCAFFOLD", functools.partial(algorithms.scaffold, prox="feedback"), "ef14"),
}
WHOLE, ALONE = "whole", ", alone"
_TRAFFIC = ("bytes_up", "bytes_down")


def names(config: Config) -> list[str]:
    """Return the codecs by name; ``, alone`` marks those without feedback."""
    return [*config.codecs, *(name + ALONE for name in config.alone)]


def study(kind: Kind, config: Config) -> Iterator[Row]:
    """Yield facts of the problem, each run's end, and the curve of each seed at the best step."""
    task, facts = kind.build(config)
    yield {"part": "problem"} | facts
    for method in config.methods:
        for name in names(config):
            yield from _pair(kind, config, task, method, name)


def _pair(kind: Kind, config: Config, task: Task, method: str, name: str) -> Iterator[Row]:
    history = _run(config, task, method, name)
    mean = {key: history[key].mean(axis=1) for key in (*kind.measures, *_TRAFFIC)}
    given = {"method": method, "codec": name}
    rows, (first, second) = [], kind.measures
    for place, factor in enumerate(config.step_factors):
        values, sent = mean[first][place], mean["bytes_up"][place]
        end = float(values[-1]) if np.isfinite(values[-1]) else math.inf
        rows.append({"part": "point", **given, "step_factor": factor, first: end})
        for tolerance in config.tolerances:
            near = np.flatnonzero(values <= tolerance)
            look = near[0] if near.size else None
            rows[-1][f"bytes to {tolerance:g}"] = math.inf if look is None else sent[look]
            rows[-1][f"rounds to {tolerance:g}"] = (
                math.inf if look is None else history["round"][look]
            )
    best = min(range(len(rows)), key=lambda place: _order(config, rows[place], first))
    for place, row in enumerate(rows):
        yield row | {"best": place == best, second: float(mean[second][place, -1])}
    for j, seed in enumerate(config.seeds):
        for look, round_ in enumerate(history["round"]):
            yield {"part": "curve", **given, "seed": seed, "round": int(round_)} | {
                key: float(history[key][best, j, look]) for key in mean
            }


def _order(config: Config, row: Row, first: str) -> tuple:
    """Return the sorting key of a step: bytes to each tolerance, smallest first, and the end."""
    return (*(row[f"bytes to {near:g}"] for near in sorted(config.tolerances)), row[first])


def _run(config: Config, task: Task, method: str, name: str) -> dict[str, np.ndarray]:
    """Return the measures and the bytes sent so far, [points, seeds, evaluations]."""
    chosen = METHODS[method]
    algorithm, work, unit = chosen.build(task.loss, task.penalty), task.work, 1.0
    if task.smoothness is not None:
        work = fcojax.local_steps(1) if chosen.one_step else work
        unit = 1 / ((work.num_steps or 1) * task.smoothness)
    grid = fcojax.grid.product(
        algorithm.hparams_type,
        client_lr=[factor * unit for factor in config.step_factors],
        server_lr=[1.0],
        penalty_scale=[task.scale],
    )
    plan = fcojax.Plan(work, uploads=_uploads(name, chosen.feedback))
    _, history = fcojax.sweep(
        algorithm,
        grid,
        task.start,
        task.data,
        jax.vmap(jax.random.key)(jnp.asarray(config.seeds)),
        plan,
        num_rounds=config.num_rounds,
        eval_every=config.eval_every,
        observe=task.observe,
        context=task.context,
    )
    found = {key: np.asarray(values) for key, values in history.items() if key != "round"}
    so_far = {key: np.cumsum(found[key], axis=-1) for key in _TRAFFIC}
    looks = config.num_rounds // config.eval_every
    return found | so_far | {"round": np.arange(1, looks + 1) * config.eval_every}


@functools.cache
def _uploads(name: str, feedback: str) -> uploads.UploadTransform:
    if name == WHOLE:
        return uploads.chain()
    remedy = "" if name.endswith(ALONE) else f",{feedback}"
    return codec(name.removesuffix(ALONE) + remedy)


def summarise(kind: Kind, config: Config, rows: list[Row]) -> Summary:
    """Return each pair's best step, and how many times fewer bytes it sends than whole uploads."""
    [facts] = select(rows, part="problem")
    table = []
    for method in config.methods:
        points = select(rows, part="point", method=method, best=True)
        whole = next((row for row in points if row["codec"] == WHOLE), {})
        for row in points:
            entry = {
                "method": METHODS[method].text,
                "codec": row["codec"],
                f"step{kind.step}": row["step_factor"],
            }
            for near in config.tolerances:
                sent, rounds = (row[f"{what} to {near:g}"] for what in ("bytes", "rounds"))
                entry[f"rounds to {near:g}"] = rounds
                entry[f"kB up to {near:g}"] = None if sent is None else sent / 1e3
                least = whole.get(f"bytes to {near:g}")
                entry[f"times fewer to {near:g}"] = least / sent if least and sent else None
            for measure in kind.measures:
                entry[f"{'F1' if measure == 'f1' else measure} at the end"] = row[measure]
            table.append(entry)
    return {"data": [{key: facts[key] for key in facts if key != "part"}], "best": table}
