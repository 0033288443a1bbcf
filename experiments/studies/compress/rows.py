"""Rows, tables and figure for each pair of a method and a codec, at all steps and at the best."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import fcojax
from experiments.codecs import codec
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.compare.rows import lasso
from experiments.studies.shared import Chart, Curve, Task, by_writer, digits, figure
from experiments.study import Config
from fcojax import algorithms, uploads
from fcojax.problems import partition
from fcojax.transforms import euclidean, l1, on_subtree

WHOLE, ALONE = "whole", ", alone"
_TRAFFIC = ("bytes_up", "bytes_down")
_NUM_CLASSES = 10

# By name (loss, penalty) -> the method, and the error feedback that fits its uploads.
METHODS = {
    "fed_dual_avg": (lambda loss, psi: algorithms.fed_dual_avg(loss, euclidean(psi)), "ef21"),
    "composite_fl": (algorithms.composite_fl, "ef14"),
    "scaffold": (functools.partial(algorithms.scaffold, prox="feedback"), "ef14"),
}


def _lasso(config: Config) -> tuple[Task, Row]:
    """Return the lasso of ``compare`` whose clients differ in Hessians and true weights."""
    task, facts = lasso(config, "own")
    shown = {key: facts[key] for key in ("largest_smoothness", "nonzeros", "residual")}
    return task, {"clients": task.data.num_clients} | shown


def _network(config: Config) -> tuple[Task, Row]:
    """Return a small convolutional network with an l1 norm of its dense kernels."""
    from fcojax import networks

    own, (name, train, test) = config.own, _images(config)
    side = round(train.examples["x"].shape[1] ** 0.5)
    build = networks.conv_net((side, side, 1), tuple(own.filters), own.num_hidden, _NUM_CLASSES)
    problem = networks.network(build, train, test, num_classes=_NUM_CLASSES)

    def observe(hparams, model, context):
        measured = problem.measures(model)
        return {"error": 1 - measured["accuracy"], "density": measured["density"]}

    start = problem.init(jax.random.key(config.data_seed))
    facts = {
        "data": name,
        "clients": train.num_clients,
        "images": int(train.offsets[-1]),
        "test_images": int(test.offsets[-1]),
        "weights": sum(leaf.size for leaf in jax.tree.leaves(start)),
    }
    penalty = on_subtree(l1(), networks.dense_kernels)
    work = fcojax.local_steps(own.num_steps, own.batch_size)
    return Task(problem.loss, train, penalty, own.scale, start, work, observe), facts


def _images(config: Config) -> tuple[str, fcojax.ClientData, fcojax.ClientData]:
    """Return MNIST by writer, or scikit-learn's digits for clients with different labels."""
    if config.data_dir:
        train, test = by_writer(config)
        return "MNIST", train, test
    found = digits()
    held = np.arange(found["y"].size) % 5 == 0  # every fifth example is for testing
    rows, tests = ({key: each[part] for key, each in found.items()} for part in (~held, held))
    train = partition.dirichlet(
        rows["y"], config.num_clients, config.own.concentration, min_size=20, seed=config.data_seed
    ).apply(rows, "examples")
    return "scikit-learn's digits", train, fcojax.from_rows(tests, [int(held.sum())])


class Kind(NamedTuple):
    """A study of this kind: its problem, and two measures with labels.

    Attributes:
      build: ``config -> task, facts``.
      measures: labels by measure; the tolerances are of the first.
      step: the unit of the steps.
    """

    build: Callable[[Config], tuple[Task, Row]]
    measures: Mapping[str, str]
    step: str = ""

    def rows(self, config: Config) -> Iterator[Row]:
        """Yield facts of the problem, each run's end, and each seed's curve at the best step."""
        task, facts = self.build(config)
        yield {"part": "problem"} | facts
        for method, name in itertools.product(config.methods, _names(config)):
            yield from self._pair(config, _run(config, task, method, name), method, name)

    def _pair(
        self, config: Config, history: dict[str, np.ndarray], method: str, name: str
    ) -> Iterator[Row]:
        mean = {key: history[key].mean(axis=1) for key in (*self.measures, *_TRAFFIC)}
        given, rounds = {"method": method, "codec": name}, history["round"][0, 0]
        rows, (first, second) = [], self.measures
        for place, factor in enumerate(config.step_factors):
            values, sent = mean[first][place], mean["bytes_up"][place]
            end = float(values[-1]) if np.isfinite(values[-1]) else math.inf
            rows.append({"part": "point", **given, "step_factor": factor, first: end})
            for tolerance in config.tolerances:
                near = [*np.flatnonzero(values <= tolerance)[:1]]
                rows[-1][f"bytes to {tolerance:g}"] = sent[near[0]] if near else math.inf
                rows[-1][f"rounds to {tolerance:g}"] = rounds[near[0]] if near else math.inf
        # Bytes to each tolerance, the smallest first, and the end.
        order = [*(f"bytes to {near:g}" for near in sorted(config.tolerances)), first]
        best = min(range(len(rows)), key=lambda place: [rows[place][key] for key in order])
        for place, row in enumerate(rows):
            yield row | {"best": place == best, second: float(mean[second][place, -1])}
        for (j, seed), (look, at) in itertools.product(enumerate(config.seeds), enumerate(rounds)):
            curve = {key: float(history[key][best, j, look]) for key in mean}
            yield {"part": "curve", **given, "seed": seed, "round": int(at)} | curve

    def summarise(self, config: Config, rows: list[Row]) -> Summary:
        """Return each pair's best step, and how many times fewer bytes it sends than whole ones."""
        [facts] = select(rows, part="problem")
        table = []
        for method in config.methods:
            points = select(rows, part="point", method=method, best=True)
            whole = next((row for row in points if row["codec"] == WHOLE), {})
            for row in points:
                entry = {"method": style(method)[0], "codec": row["codec"]}
                entry[f"step{self.step}"] = row["step_factor"]
                for near in config.tolerances:
                    sent, rounds = (row[f"{what} to {near:g}"] for what in ("bytes", "rounds"))
                    entry[f"rounds to {near:g}"] = rounds
                    entry[f"kB up to {near:g}"] = None if sent is None else sent / 1e3
                    least = whole.get(f"bytes to {near:g}")
                    entry[f"times fewer to {near:g}"] = least / sent if least and sent else None
                for measure in self.measures:
                    entry[f"{'F1' if measure == 'f1' else measure} at the end"] = row[measure]
                table.append(entry)
        return {"data": [{key: facts[key] for key in facts if key != "part"}], "best": table}

    def draw(
        self, config: Config, rows: list[Row], summary: Summary, directory: Path
    ) -> list[Path]:
        """Draw both measures over kilobytes, a column of charts for each method."""
        bare = {name: name.removesuffix(ALONE) for name in _names(config)}
        colours = {name: f"C{at}" for at, name in enumerate(dict.fromkeys(bare.values()))}
        points = [row | {"kB": row["bytes_up"] / 1e3} for row in select(rows, part="curve")]
        charts = []
        for measure, method in itertools.product(self.measures, config.methods):
            own, curves = select(points, method=method), []
            for name, kind in bare.items():
                line = "-" if name == kind else "--"
                curves.append(Curve(select(own, codec=name), measure, colours[kind], name, line))
            labels, log = ("kilobytes sent up", self.measures[measure]), "x" * (measure == "f1")
            limits = (1e-9, 10) if measure == "distance" else None
            charts.append(Chart("kB", labels, curves, style(method)[0], log or "xy", None, limits))
        path = directory / "curves.png"
        return figure(path, "At each codec's best step", charts, len(config.methods), height=2.3)


_ON_LASSO = {"distance": "relative distance", "f1": "F1 of the support"}
_ON_NETWORK = {"error": "error on test digits", "density": "density of dense kernels"}
ON_LASSO, ON_NETWORK = Kind(_lasso, _ON_LASSO, ", of 1 / (K L)"), Kind(_network, _ON_NETWORK)


def _names(config: Config) -> list[str]:
    """Return the codecs by name; ``, alone`` marks those without feedback."""
    return [*config.codecs, *(name + ALONE for name in config.alone)]


def _run(config: Config, task: Task, method: str, name: str) -> dict[str, np.ndarray]:
    """Return the measures and the bytes sent so far, [points, seeds, evaluations]."""
    build, feedback = METHODS[method]
    algorithm, work, unit = build(task.loss, task.penalty), task.work, 1.0
    if task.smoothness:
        # With several local steps dual averaging has another limit even without compression.
        work = fcojax.local_steps(1) if method == "fed_dual_avg" else work
        unit = 1 / ((work.num_steps or 1) * task.smoothness)
    rates = [factor * unit for factor in config.step_factors]
    numbers = {"client_lr": rates, "server_lr": [1.0], "penalty_scale": [task.scale]}
    grid = fcojax.grid.product(algorithm.hparams_type, **numbers)
    plan = fcojax.Plan(work, uploads=_uploads(name, feedback))
    return task.swept(algorithm, grid, config.seeds, plan, config.num_rounds, config.eval_every)


@functools.cache
def _uploads(name: str, feedback: str) -> uploads.UploadTransform:
    if name == WHOLE:
        return uploads.chain()
    remedy = "" if name.endswith(ALONE) else f",{feedback}"
    return codec(name.removesuffix(ALONE) + remedy)
