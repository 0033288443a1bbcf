"""Rows of every algorithm on its grid of rates, by model, constraint and radius, and the table."""

import itertools
from collections.abc import Iterator

import jax
import numpy as np

import fcojax
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.report.tables import best_point
from experiments.studies.emnist.problem import SYNTHETIC, Task, data, task
from experiments.studies.shared import swept
from experiments.study import Config
from fcojax import algorithms
from fcojax.extend import take
from fcojax.transforms import euclidean

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
