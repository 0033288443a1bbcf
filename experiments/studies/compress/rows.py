"""Rows, tables and figure for each pair of a method and a codec, at all steps and at the best."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fcojax
from experiments.codecs import codec
from experiments.report.rows import Row, Summary, select
from experiments.studies.compress.problem import Task
from experiments.studies.shared import Chart, Curve, figure, swept
from experiments.study import Config
from fcojax import algorithms, uploads
from fcojax.algorithms import Algorithm
from fcojax.transforms import euclidean

WHOLE, ALONE = "whole", ", alone"
_TRAFFIC = ("bytes_up", "bytes_down")
_COLOURS = [
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#882255",
    "#999933",
    "#44AA99",
]


class Kind(NamedTuple):
    """A problem of the study, and the labels in its tables.

    Attributes:
      build: ``config -> (Task, facts)``.
      measures: the observed measures with their labels; the tolerances are bounds on the first one.
      step: the unit of the steps, as it follows a comma in a label.
    """

    build: Callable[[Config], tuple[Task, Row]]
    measures: Mapping[str, str]
    step: str


class Method(NamedTuple):
    """A method of the study.

    Attributes:
      text: its name.
      build: ``task -> Algorithm``.
      feedback: the error feedback that fits its uploads.
      one_step: whether it is exact only with one local step; it then takes one, if L is known.
    """

    text: str
    build: Callable[[Task], Algorithm]
    feedback: str
    one_step: bool = False


METHODS = {
    "fed_dual_avg": Method(
        "FedDualAvg",
        lambda task: algorithms.fed_dual_avg(task.loss, euclidean(task.penalty)),
        "ef21",
        one_step=True,
    ),
    "composite_fl": Method(
        "Composite FL", lambda task: algorithms.composite_fl(task.loss, task.penalty), "ef14"
    ),
    "scaffold": Method(
        "SCAFFOLD",
        lambda task: algorithms.scaffold(task.loss, task.penalty, prox="feedback"),
        "ef14",
    ),
}


def names(config: Config) -> list[str]:
    """Return the codecs by name; ``, alone`` marks those without feedback."""
    return [*config.codecs, *(name + ALONE for name in config.alone)]


def study(kind: Kind, config: Config) -> Iterator[Row]:
    """Yield facts of the problem, each run's end, and the curve of each seed at the best step."""
    task, facts = kind.build(config)
    yield {"part": "problem"} | facts
    for method, name in itertools.product(config.methods, names(config)):
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
            near = [*np.flatnonzero(values <= tolerance)[:1]]
            rows[-1][f"bytes to {tolerance:g}"] = sent[near[0]] if near else math.inf
            rows[-1][f"rounds to {tolerance:g}"] = history["round"][near[0]] if near else math.inf
    # Bytes to each tolerance, the smallest first, and the end.
    order = [*(f"bytes to {near:g}" for near in sorted(config.tolerances)), first]
    best = min(range(len(rows)), key=lambda place: [rows[place][key] for key in order])
    for place, row in enumerate(rows):
        yield row | {"best": place == best, second: float(mean[second][place, -1])}
    for j, seed in enumerate(config.seeds):
        for look, round_ in enumerate(history["round"]):
            yield {"part": "curve", **given, "seed": seed, "round": int(round_)} | {
                key: float(history[key][best, j, look]) for key in mean
            }


def _run(config: Config, task: Task, method: str, name: str) -> dict[str, np.ndarray]:
    """Return the measures and the bytes sent so far, [points, seeds, evaluations]."""
    chosen, work, unit = METHODS[method], task.work, 1.0
    algorithm = chosen.build(task)
    if task.smoothness is not None:
        work = fcojax.local_steps(1) if chosen.one_step else work
        unit = 1 / ((work.num_steps or 1) * task.smoothness)
    grid = fcojax.grid.product(
        algorithm.hparams_type,
        client_lr=[factor * unit for factor in config.step_factors],
        server_lr=[1.0],
        penalty_scale=[task.scale],
    )
    found = swept(
        algorithm,
        grid,
        task.start,
        task.data,
        seeds=config.seeds,
        plan=fcojax.Plan(work, uploads=_uploads(name, chosen.feedback)),
        num_rounds=config.num_rounds,
        eval_every=config.eval_every,
        observe=task.observe,
        context=task.context,
    )
    so_far = {key: np.cumsum(found[key], axis=-1) for key in _TRAFFIC}
    return found | so_far | {"round": found["round"][0, 0]}


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
            entry = {"method": METHODS[method].text, "codec": row["codec"]}
            entry[f"step{kind.step}"] = row["step_factor"]
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


def draw(
    kind: Kind, config: Config, rows: list[Row], summary: Summary, directory: Path
) -> list[Path]:
    """Draw both measures over kilobytes, a column of charts for each method."""
    kinds = dict.fromkeys(name.removesuffix(ALONE) for name in names(config))
    colours = {name: f"C{at}" for at, name in enumerate(kinds)}
    curves = [row | {"kB": row["bytes_up"] / 1e3} for row in select(rows, part="curve")]
    charts = []
    for (measure, label), method in itertools.product(kind.measures.items(), config.methods):
        drawn = [
            Curve(
                select(curves, method=method, codec=name),
                measure,
                colours[name.removesuffix(ALONE)],
                name,
                "--" if ALONE in name else "-",
            )
            for name in names(config)
        ]
        labels, title = ("kilobytes sent up", label), METHODS[method].text
        log = "x" if measure == "f1" else "xy"
        limits = (1e-9, 10) if measure == "distance" else None
        charts.append(Chart("kB", labels, drawn, title, log, None, limits))
    path = directory / "curves.png"
    return figure(path, "At each codec's best step", charts, len(config.methods), height=2.3)
