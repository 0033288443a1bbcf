"""Rows of every algorithm on its grid of rates, by model, constraint and radius, and the table."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.report.tables import best_point
from experiments.studies.shared import by_writer, swept
from experiments.study import Config, from_config
from fcojax import algorithms, datasets, problems
from fcojax.extend import take
from fcojax.problems import ClientData, Problem, population_loss
from fcojax.problems.client_data import ids_of
from fcojax.transforms import Penalty, euclidean, l1_ball, l2_ball, named, on_subtree, per_leaf
from fcojax.types import Array, Params

NUM_CLASSES = 10
_SIDE = 28  # of an image
SYNTHETIC = "synthetic"


class Data(NamedTuple):
    """Digits for training and validation, and the name of the data in tables."""

    name: str
    train: ClientData
    validation: ClientData


class Task(NamedTuple):
    """A model on its data, with one ball for each dense kernel.

    Attributes:
      problem: the loss and its measures.
      ball: the constraint; its ``scale`` is the radius.
      observe: ``(hparams, params, (train, validation)) -> dict``, the measures of a point;
        ``violation`` is the largest relative excess of a kernel's norm over the radius.
    """

    problem: Problem
    ball: Penalty
    observe: Callable[[Any, Params, tuple[ClientData, ClientData]], dict[str, Array]]


def data(config: Config) -> Data:
    """Return federated EMNIST or MNIST by writer from ``config.data_dir``, or synthetic data."""
    if not config.data_dir:
        options = {"num_classes": NUM_CLASSES, "seed": config.data_seed}
        drawn = from_config(problems.synthetic_softmax, config, **options)
        return Data(SYNTHETIC, drawn.train, drawn.validation)
    share, stem = config.share_of_writers, pathlib.Path(config.data_dir) / "fed_emnist_digitsonly"
    if stem.with_name(f"{stem.name}_train.h5").exists():
        train = datasets.by_client(datasets.emnist(f"{stem}_train.h5", share=share), "examples")
        test = datasets.emnist(f"{stem}_test.h5", client_ids=ids_of(train).tolist())
        return Data("EMNIST", train, datasets.by_client(test, "examples"))
    return Data("MNIST", *by_writer(config))


def task(config: Config, digits: Data, model: str, constraint: str) -> Task:
    """Return the task of a model whose dense kernels lie in balls of the norm ``constraint``."""
    problem, chosen = _model(config, digits, model)
    l2 = l2_ball(), lambda sizes: jnp.sqrt(jnp.sum(sizes**2))
    ball, norm = (l1_ball(), jnp.sum) if constraint == "l1" else l2

    def observe(hparams, params, context):
        train, validation = (population_loss(problem.loss, params, data) for data in context)
        leaves = jax.tree_util.tree_leaves_with_path(params)
        norms = [norm(jnp.abs(leaf)) for path, leaf in leaves if chosen(path, leaf)]
        excess = jnp.maximum(jnp.max(jnp.stack(norms)) / hparams.penalty_scale - 1, 0)
        found = {"loss": train, "validation_loss": validation, "violation": excess}
        return found | problem.measures(params)

    return Task(problem, on_subtree(per_leaf(ball), chosen), observe)


def _random(config: Config, data: ClientData) -> ClientData:
    """Return random cosine features, which approximate a Gaussian kernel."""
    return problems.random_features(data, num_features=config.num_features, seed=config.data_seed)


def _quadratic(config: Config, data: ClientData) -> ClientData:
    """Return products of pixels; of images, of the means over four pixels.

    The 307,720 products of 784 pixels are 1.2 MB an image, the 19,306 of 196 means 77 kB.
    """
    x = data.examples["x"]
    if x.shape[1] == _SIDE**2:
        half = _SIDE // 2
        x = x.reshape(-1, half, 2, half, 2).mean(axis=(2, 4)).reshape(-1, half**2)
    pooled = dataclasses.replace(data, examples={**data.examples, "x": x})
    return problems.quadratic_features(pooled)


# The models that are linear in features of the images.
_LINEAR = {"softmax": lambda config, data: data, "klr": _random, "qlr": _quadratic}


def _model(config: Config, digits: Data, model: str) -> tuple[Problem, Callable]:
    """Return the problem, and a predicate that selects the constrained leaves."""
    from fcojax.networks import conv_net, dense_kernels, network, two_layer

    options = {"num_classes": NUM_CLASSES, "cuts": (config.cut,)}
    sets, num_features = (digits.train, digits.validation), digits.train.examples["x"].shape[1]
    if model in _LINEAR:
        sets = [_LINEAR[model](config, part) for part in sets]
        return problems.softmax(*sets, **options), named("kernel")
    if model == "mlp":
        build = two_layer(num_features, config.num_hidden, NUM_CLASSES)
    elif num_features != _SIDE**2:
        raise ValueError(
            f"model={model} needs images of 28 x 28, not {num_features} features; pass data_dir, "
            "or leave it out of models."
        )
    else:
        build = conv_net((28, 28, 1), tuple(config.cnn_filters), config.cnn_hidden, NUM_CLASSES)
    return network(build, *sets, **options), dense_kernels


MEASURES = ("loss", "validation_loss", "accuracy", "density", "violation")
# Algorithms that take a mirror and need no further hyperparameters.
ALGORITHMS = [
    name
    for name, factory in vars(algorithms).items()
    if getattr(factory, "geometry", ()) == ("mirror",)
    and {"client_lr", "server_lr", "penalty_scale"} <= {*factory.Hparams._fields}
]
RATES = ("client_lr", "server_lr")
SETTING = ("model", "constraint", "radius")


def study(config: Config) -> Iterator[Row]:
    """Yield the points of every grid, and the curves of the best one."""
    digits = data(config)
    sets = {"images": digits.train, "validation_images": digits.validation}
    facts = {name: int(one.offsets[-1]) for name, one in sets.items()}
    yield {"part": "data", "data": digits.name, "clients": digits.train.num_clients} | facts
    for model, constraint in itertools.product(config.models, config.constraints):
        if model == "cnn" and digits.name == SYNTHETIC:
            continue  # without images there are no convolutions
        chosen = task(config, digits, model, constraint)
        for name in config.algorithms:
            place = {"model": model, "constraint": constraint, "algorithm": name}
            yield from sweep(config, chosen, config[model], place)


def sweep(config: Config, chosen: Task, own: Config, place: Row) -> Iterator[Row]:
    """Yield one algorithm's points under one constraint, and the curves of each radius's best."""
    rates = list(itertools.product(own.client_lr, own.server_lr))
    radii = own.radii[place["constraint"]]
    points = [(radius, *pair) for radius in radii for pair in rates]
    history = run(config, chosen, own, place["algorithm"], points)
    last = max(1, config.criterion_rounds // config.eval_every)
    scores = history["loss"][..., -last:].mean(axis=(1, 2))
    scores = np.where(np.isfinite(scores), scores, np.inf)
    for first, radius in zip(range(0, scores.size, len(rates)), radii, strict=True):
        here = place | {"radius": radius}
        best = first + int(np.argmin(scores[first : first + len(rates)]))
        for point, pair in enumerate(rates, start=first):
            seen = {"score": scores[point], "violation": history["violation"][point].max()}
            tried = dict(zip(RATES, pair, strict=True)) | {"best": point == best}
            yield {"part": "point"} | here | tried | seen
        for j, k in np.ndindex(history["round"].shape[1:]):
            seen = {name: history[name][best, j, k] for name in ("round", *MEASURES)}
            yield {"part": "curve", "seed": config.seeds[j]} | here | seen


def run(
    config: Config, chosen: Task, own: Config, name: str, points: list[tuple[float, ...]]
) -> dict[str, np.ndarray]:
    """Return the measures of each radius and pair of rates, axes [points, seeds, evaluations]."""
    problem, ball, factory = chosen.problem, chosen.ball, getattr(algorithms, name)
    numbers = dict(zip(("penalty_scale", *RATES), zip(*points, strict=True), strict=True))
    grid = fcojax.grid.zipped(factory.Hparams, **numbers)
    plain = factory(problem.loss, euclidean(ball))

    def init(hparams, params):
        """Start at the projection of the start point onto the ball."""
        return plain.init(hparams, ball.prox(params, 0.0, hparams.penalty_scale))

    algorithm = plain._replace(init=init)
    plan = fcojax.Plan(
        fcojax.local_epochs(config.num_epochs, config.batch_size),
        fcojax.uniform_cohort(cohort_size=min(config.cohort_size, problem.train.num_clients)),
        point_chunk_size=config.point_chunk_size,
    )
    start, seeds = problem.init(jax.random.key(config.data_seed)), config.seeds
    sizes = {"num_points": len(points), "num_seeds": len(seeds)}
    train = fcojax.devices.spread(algorithm, take(grid, 0), start, problem.train, plan, **sizes)
    watched = {"observe": chosen.observe, "context": (train, problem.validation)}
    rounds = {"num_rounds": own.num_rounds, "eval_every": config.eval_every}
    return swept(algorithm, grid, start, train, seeds, plan, **rounds, **watched)


def settings(rows: list[Row]) -> list[dict]:
    """Return the models, constraints and radii of the run, in order."""
    found = {tuple(row[name] for name in SETTING): None for row in select(rows, part="point")}
    return [dict(zip(SETTING, values, strict=True)) for values in found]


def late_losses(config: Config, curve: list[Row]) -> np.ndarray:
    """Return the mean training loss of each seed over the rounds by which rates are chosen."""
    evaluations = max(1, config.criterion_rounds // config.eval_every)
    last = config[curve[0]["model"]].num_rounds - evaluations * config.eval_every
    late = [row for row in curve if row["round"] > last]
    return np.array([np.mean(column(own, "loss")) for own in by_seed(late).values()])


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the facts of the data, and one row per setting and algorithm."""
    table = []
    for setting, name in itertools.product(settings(rows), config.algorithms):
        own = select(rows, algorithm=name, **setting)
        points, curve = (select(own, part=part) for part in ("point", "curve"))
        [best], last = select(points, best=True), select(curve, round=curve[-1]["round"])
        failed = int(np.sum(~np.isfinite(column(points, "score"))))
        row = setting | {"algorithm": style(name)[0]} | best_point(points, RATES)
        row |= {"score": best["score"]}
        row |= {measure: float(np.mean(column(last, measure))) for measure in MEASURES}
        table.append(row | {"failed points": f"{failed}/{len(points)}"})
    [facts] = select(rows, part="data")
    return {"data": [{key: facts[key] for key in facts if key != "part"}], "best": table}
