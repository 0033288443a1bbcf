"""Rows, tables and figure for each pair of a method and a codec, at all steps and at the best."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.codecs import codec
from experiments.report.rows import Row, Summary, select
from experiments.studies.compare import problem as compared
from experiments.studies.shared import Chart, Curve, figure, swept
from experiments.study import Config
from fcojax import algorithms, datasets, tree, uploads
from fcojax.algorithms import Algorithm, Work
from fcojax.datasets.reading import optional
from fcojax.problems import factored_loss, partition
from fcojax.problems.losses import Loss
from fcojax.transforms import Penalty, euclidean, l1, on_subtree
from fcojax.types import Array, Params

WHOLE, ALONE = "whole", ", alone"
_TRAFFIC = ("bytes_up", "bytes_down")
_NUM_CLASSES = 10


class Task(NamedTuple):
    """A problem, and the work of its clients.

    Attributes:
      loss: one loss per example.
      data: the clients.
      penalty: psi.
      scale: its strength.
      start: the start point.
      work: the K local steps of a client in a round.
      observe: ``(hparams, model, context) -> dict``, the measures of a point.
      smoothness: the largest curvature L of any client's loss; ``None`` if there is no bound.
      context: the data that ``observe`` reads.
    """

    loss: Loss
    data: fcojax.ClientData
    penalty: Penalty
    scale: float
    start: Params
    work: Work
    observe: Callable[[Any, Params, Any], dict[str, Array]]
    smoothness: float | None = None
    context: Any = None


def lasso(config: Config) -> tuple[Task, Row]:
    """Return the lasso of ``compare`` whose clients differ in Hessians and true weights."""
    found, facts = compared.lasso(config, "own")
    shown = {key: facts[key] for key in ("largest_smoothness", "nonzeros", "residual")}
    return Task(
        factored_loss,
        found.data,
        found.penalty,
        found.scale,
        jnp.zeros(config.dim),
        fcojax.local_steps(found.num_steps),
        _to_optimum,
        found.smoothness,
        jnp.asarray(found.optimum),
    ), {"clients": found.data.num_clients} | shown


def _to_optimum(hparams: Any, model: Params, optimum: Params) -> dict[str, Array]:
    found, true = model != 0, optimum != 0
    return {
        "distance": tree.norm(tree.sub(model, optimum)) / tree.norm(optimum),
        "f1": 2 * jnp.sum(found & true) / jnp.maximum(jnp.sum(found) + jnp.sum(true), 1),
    }


def network(config: Config) -> tuple[Task, Row]:
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
        train, test = (
            datasets.by_client(datasets.mnist(config.data_dir, split), "examples")
            for split in ("train", "test")
        )
        train, test = (
            data.select(np.arange(max(1, round(config.share_of_writers * data.num_clients))))
            for data in (train, test)
        )
        return "MNIST", train, test
    found = optional("sklearn.datasets", "data").load_digits()
    x, y = found.data / 16, found.target.astype(np.int32)
    held = np.arange(y.size) % 5 == 0  # every fifth example is for testing
    rows = {"x": x[~held], "y": y[~held]}
    train = partition.dirichlet(
        rows["y"], config.num_clients, config.own.concentration, min_size=20, seed=config.data_seed
    ).apply(rows, "examples")
    test = fcojax.from_rows({"x": x[held], "y": y[held]}, [int(held.sum())])
    return "scikit-learn's digits", train, test


class Kind(NamedTuple):
    """A problem, its measures with labels, of which tolerances bound the first; the steps' unit."""

    build: Callable[[Config], tuple[Task, Row]]
    measures: Mapping[str, str]
    step: str


class Method(NamedTuple):
    """The name of a method, and the error feedback that fits its uploads."""

    text: str
    feedback: str


METHODS = {
    "fed_dual_avg": Method("FedDualAvg", "ef21"),
    "composite_fl": Method("Composite FL", "ef14"),
    "scaffold": Method("SCAFFOLD", "ef14"),
}


def _built(name: str, task: Task) -> Algorithm:
    if name == "fed_dual_avg":
        return algorithms.fed_dual_avg(task.loss, euclidean(task.penalty))
    options = {"prox": "feedback"} if name == "scaffold" else {}
    return getattr(algorithms, name)(task.loss, task.penalty, **options)


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
    algorithm, work, unit = _built(method, task), task.work, 1.0
    if task.smoothness is not None:
        # With several local steps dual averaging has another limit even without compression.
        work = fcojax.local_steps(1) if method == "fed_dual_avg" else work
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
        plan=fcojax.Plan(work, uploads=_uploads(name, METHODS[method].feedback)),
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
    for measure, method in itertools.product(kind.measures, config.methods):
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
        labels, title = ("kilobytes sent up", kind.measures[measure]), METHODS[method].text
        log = "x" if measure == "f1" else "xy"
        limits = (1e-9, 10) if measure == "distance" else None
        charts.append(Chart("kB", labels, drawn, title, log, None, limits))
    path = directory / "curves.png"
    return figure(path, "At each codec's best step", charts, len(config.methods), height=2.3)
