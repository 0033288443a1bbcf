"""Every algorithm over its grid of rates, for each model, constraint and radius."""

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.studies.emnist.problem import SYNTHETIC, Task, data, task
from fcojax import algorithms
from fcojax.engine.grid import take
from fcojax.transforms import euclidean

MEASURES = ("loss", "validation_loss", "accuracy", "density", "violation")


def study(config):
    """The points of every grid, and the curves of the best one."""
    digits = data(config)
    yield {
        "part": "data", "data": digits.name, "clients": digits.train.num_clients,
        "images": int(digits.train.offsets[-1]),
        "validation_images": int(digits.validation.offsets[-1]),
    }  # fmt: skip
    for model in config.models:
        if model == "cnn" and digits.name == SYNTHETIC:
            continue  # no images, no convolutions
        for constraint in config.constraints:
            chosen = task(config, digits, model, constraint)
            for name in config.algorithms:
                place = {"model": model, "constraint": constraint, "algorithm": name}
                yield from sweep(config, chosen, config[model], place)


def sweep(config, chosen: Task, own, place: dict):
    """The rows of one algorithm under one constraint: every radius with every pair of rates."""
    radii = own.radii[place["constraint"]]
    rates = [(client, server) for client in own.client_lr for server in own.server_lr]
    points = [(radius, *pair) for radius in radii for pair in rates]
    history = run(config, chosen, own, place["algorithm"], points)
    for first, radius in zip(range(0, len(points), len(rates)), radii, strict=True):
        mine = {name: seen[first : first + len(rates)] for name, seen in history.items()}
        yield from rows(config, rates, mine, place | {"radius": radius})


def rows(config, rates, history, place: dict):
    """The points of one radius, and the curves of the best one."""
    last = max(1, config.criterion_rounds // config.eval_every)
    scores = history["loss"][..., -last:].mean(axis=(1, 2))
    scores = np.where(np.isfinite(scores), scores, np.inf)
    best = int(np.argmin(scores))
    for point, (client_lr, server_lr) in enumerate(rates):
        yield {"part": "point"} | place | {
            "client_lr": client_lr, "server_lr": server_lr, "score": float(scores[point]),
            "violation": float(history["violation"][point].max()), "best": point == best,
        }  # fmt: skip
    for place_of_seed, seed in enumerate(config.seeds):
        for look in range(history["loss"].shape[-1]):
            seen = {name: float(history[name][best, place_of_seed, look]) for name in MEASURES}
            rounds = (look + 1) * config.eval_every
            yield {"part": "curve"} | place | {"seed": seed, "round": rounds} | seen


def run(config, chosen: Task, own, name: str, points):
    """What was seen of each radius and pair of rates, with axes [points, seeds, looks]."""
    problem, factory = chosen.problem, getattr(algorithms, name)
    radii, client_lr, server_lr = map(list, zip(*points, strict=True))
    grid = fcojax.zipped(
        factory.Hparams, client_lr=client_lr, server_lr=server_lr, penalty_scale=radii
    )
    algorithm = _from_within(chosen.ball, factory(problem.loss, euclidean(chosen.ball)))
    plan = fcojax.Plan(
        fcojax.local_epochs(config.num_epochs, config.batch_size),
        fcojax.uniform_cohort(min(config.cohort_size, problem.train.num_clients)),
        point_chunk_size=config.point_chunk_size,
    )
    start = problem.init(jax.random.key(config.data_seed))
    train = fcojax.spread(
        algorithm, take(grid, 0), start, problem.train, plan, num_points=len(points)
    )
    keys = jax.vmap(jax.random.key)(jnp.asarray(config.seeds))
    _, history = fcojax.sweep(
        algorithm, grid, start, train, keys, plan, num_rounds=own.num_rounds,
        eval_every=config.eval_every, observe=chosen.look, context=(train, problem.validation),
    )  # fmt: skip
    return {name: np.asarray(history[name]) for name in MEASURES}


def _from_within(ball, algorithm):
    """The algorithm from the point of its own ball that is nearest to the start."""

    def init(hparams, params):
        return algorithm.init(hparams, ball.prox(params, 0.0, hparams.penalty_scale))

    return algorithm._replace(init=init)
