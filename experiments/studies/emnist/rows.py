"""Rows of every algorithm on its grid of rates, by model, constraint and radius, and the table."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.report.tables import best_point
from experiments.studies.emnist.problem import SYNTHETIC, Task, data, task
from experiments.study import Config
from fcojax import algorithms
from fcojax.algorithms import Algorithm
from fcojax.extend import take
from fcojax.transforms import Penalty, euclidean

MEASURES = ("loss", "validation_loss", "accuracy", "density", "violation")
# Algorithms that take a mirror and need no further hyperparameters.
ALGORITHMS = [
    name
    for name, factory in vars(algorithms).items()
    if getattr(factory, "geometry", ()) == ("mirror",)
    and {"client_lr", "server_lr", "penalty_scale"} <= {*factory.Hparams._fields}
]
SETTING = ("model", "constraint", "radius")


def study(config: Config) -> Iterator[Row]:
    """Yield the points of every grid, and the curves of the best one."""
    digits = data(config)
    yield {
        "part": "data",
        "data": digits.name,
        "clients": digits.train.num_clients,
        "images": int(digits.train.offsets[-1]),
        "validation_images": int(digits.validation.offsets[-1]),
    }
    for model in config.models:
        if model == "cnn" and digits.name == SYNTHETIC:
            continue  # without images there are no convolutions
        for constraint in config.constraints:
            chosen = task(config, digits, model, constraint)
            for name in config.algorithms:
                place = {"model": model, "constraint": constraint, "algorithm": name}
                yield from sweep(config, chosen, config[model], place)


def sweep(config: Config, chosen: Task, own: Config, place: dict) -> Iterator[Row]:
    """Yield the rows of one algorithm under one constraint: all radii and pairs of rates."""
    radii = own.radii[place["constraint"]]
    rates = [(client, server) for client in own.client_lr for server in own.server_lr]
    points = [(radius, *pair) for radius in radii for pair in rates]
    history = run(config, chosen, own, place["algorithm"], points)
    for first, radius in zip(range(0, len(points), len(rates)), radii, strict=True):
        part = {name: values[first : first + len(rates)] for name, values in history.items()}
        yield from rows(config, rates, part, place | {"radius": radius})


def rows(
    config: Config, rates: list[tuple[float, float]], history: dict[str, np.ndarray], place: dict
) -> Iterator[Row]:
    """Yield the points of one radius, and the curves of the best one."""
    last = max(1, config.criterion_rounds // config.eval_every)
    scores = history["loss"][..., -last:].mean(axis=(1, 2))
    scores = np.where(np.isfinite(scores), scores, np.inf)
    best = int(np.argmin(scores))
    for point, (client_lr, server_lr) in enumerate(rates):
        yield (
            {"part": "point"}
            | place
            | {
                "client_lr": client_lr,
                "server_lr": server_lr,
                "score": float(scores[point]),
                "violation": float(history["violation"][point].max()),
                "best": point == best,
            }
        )
    for j, seed in enumerate(config.seeds):
        for k in range(history["loss"].shape[-1]):
            values = {name: float(history[name][best, j, k]) for name in MEASURES}
            rounds = (k + 1) * config.eval_every
            yield {"part": "curve"} | place | {"seed": seed, "round": rounds} | values


def run(
    config: Config, chosen: Task, own: Config, name: str, points: list[tuple[float, ...]]
) -> dict[str, np.ndarray]:
    """Return the measures of each radius and pair of rates, axes [points, seeds, evaluations]."""
    problem, factory = chosen.problem, getattr(algorithms, name)
    radii, client_lr, server_lr = map(list, zip(*points, strict=True))
    grid = fcojax.grid.zipped(
        factory.Hparams, client_lr=client_lr, server_lr=server_lr, penalty_scale=radii
    )
    algorithm = _projected_start(chosen.ball, factory(problem.loss, euclidean(chosen.ball)))
    plan = fcojax.Plan(
        fcojax.local_epochs(config.num_epochs, config.batch_size),
        fcojax.uniform_cohort(cohort_size=min(config.cohort_size, problem.train.num_clients)),
        point_chunk_size=config.point_chunk_size,
    )
    start = problem.init(jax.random.key(config.data_seed))
    train = fcojax.devices.spread(
        algorithm,
        take(grid, 0),
        start,
        problem.train,
        plan,
        num_points=len(points),
        num_seeds=len(config.seeds),
    )
    keys = jax.vmap(jax.random.key)(jnp.asarray(config.seeds))
    _, history = fcojax.sweep(
        algorithm,
        grid,
        start,
        train,
        keys,
        plan,
        num_rounds=own.num_rounds,
        eval_every=config.eval_every,
        observe=chosen.observe,
        context=(train, problem.validation),
    )
    return {name: np.asarray(history[name]) for name in MEASURES}


def _projected_start(ball: Penalty, algorithm: Algorithm) -> Algorithm:
    """Return the algorithm, started at the projection of the start point onto the ball."""

    def init(hparams, params):
        return algorithm.init(hparams, ball.prox(params, 0.0, hparams.penalty_scale))

    return algorithm._replace(init=init)


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
    for setting in settings(rows):
        for name in config.algorithms:
            points = select(rows, part="point", algorithm=name, **setting)
            [best] = [point for point in points if point["best"]]
            curve = select(rows, part="curve", algorithm=name, **setting)
            end = max(column(curve, "round"))
            last = select(curve, round=end)
            failed = int(np.sum(~np.isfinite(column(points, "score"))))
            table.append(
                setting
                | {"algorithm": style(name)[0]}
                | best_point(points, ("client_lr", "server_lr"))
                | {"score": best["score"]}
                | {measure: float(np.mean(column(last, measure))) for measure in MEASURES}
                | {"failed points": f"{failed}/{len(points)}"}
            )
    [facts] = select(rows, part="data")
    return {"data": [{key: facts[key] for key in facts if key != "part"}], "best": table}
