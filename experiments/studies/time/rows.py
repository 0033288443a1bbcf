"""Rows: seconds to two goals by method, server and law of speed; distances by participation."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, select
from experiments.study import Config, from_config
from fcojax import algorithms, clock, reference
from fcojax.problems import lasso, population_loss
from fcojax.transforms import euclidean, l1, named, on_subtree

PENALTY = on_subtree(l1(), named("kernel"))
METHODS = {
    "fed_dual_avg": lambda loss: algorithms.fed_dual_avg(loss, euclidean(PENALTY)),
    "fed_avg": lambda loss: algorithms.fed_avg_subgradient(loss, PENALTY),
    "scaffold": lambda loss: algorithms.scaffold(loss, PENALTY, prox="feedback"),
}
SERVERS = ("synchronous", "deadline", "asynchronous")
# Seconds of a step of M clients, or of a trace.
SPEEDS = {
    "equal": lambda m: np.ones(m),
    "log_normal": lambda m: clock.log_normal(m, median=1.0, spread=1.0),
    "trace": lambda m: clock.log_normal(50 * m, median=1.0, spread=1.0).reshape(50, m),
    "one_slow": lambda m: np.where(np.arange(m) == 0, 20.0, 1.0),
}
GOALS = {"f1": ("F1 of 0.95", 0.95), "gap": ("suboptimality of 1e-3", 1e-3)}
_HALF = lambda m: np.where(np.arange(m) % 2, 0.9, 0.1)  # noqa: E731
# Samplers of M clients; half of the clients are there more often in three of them.
PARTICIPATIONS = {
    "uniform": lambda m: fcojax.uniform_cohort(cohort_size=m // 2),
    "unequal": lambda m: fcojax.coin_flips(_HALF(m)),
    "markov": lambda m: fcojax.markov(leave=0.2, join=0.2),
    "trace": lambda m: fcojax.from_trace([range(m)] + [range(1, m, 2)] * 4),
    "deadline": lambda m: clock.deadline(
        fcojax.everyone(), np.random.default_rng(0).lognormal(0, 1, (100, m)) * 2 * _HALF(m), 1.0
    ),
}


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of both parts."""
    yield from _times(config)
    yield from _biases(config)


def _times(config: Config) -> Iterator[Row]:
    for seed in config.seeds:
        problem = from_config(lasso, config.own, seed=seed)
        best = reference.optimum(problem, PENALTY, config.penalty_scale, tolerance=1e-6)
        for method in config.methods:
            algorithm = METHODS[method](problem.loss)
            for speed in config.speeds:
                for server in config.servers:
                    curves = _curves(config, problem, algorithm, SPEEDS[speed], server, seed)
                    row = {"part": "time", "method": method, "speed": speed, "server": server}
                    yield row | {"seed": seed} | _reached(config, *curves, float(best.objective))


def _curves(config: Config, problem: Any, algorithm: Any, speed: Any, server: str, seed: int):
    """Return the seconds of each evaluation, and the measures, [points, evaluations]."""
    data, num_clients = problem.train, problem.train.num_clients
    step, key = speed(num_clients), jax.random.key(seed)
    num_rounds, every = config.num_rounds, config.eval_every
    plan = fcojax.Plan(fcojax.local_steps(config.num_steps))
    laws = clock.Clock(step)
    times = laws.client_seconds(num_clients, config.num_steps)
    seconds = None
    if server == "deadline":
        limit = config.patience * float(np.median(times))
        plan = plan._replace(cohort=clock.deadline(plan.cohort, times, limit))
    if server == "asynchronous":
        # As many uploads as the synchronous server receives.
        more = num_clients // config.buffer
        num_rounds, every = num_rounds * more, every * more
        order = clock.arrivals(times, buffer=config.buffer, num_rounds=num_rounds)
        states = algorithm.init(algorithm.hparams_type(), problem.init(key))[1]
        power = 0.0 if jax.tree.leaves(states) else 0.5  # exact methods keep states
        algorithm = clock.asynchronous(algorithm, order.staleness, power)
        plan, seconds = plan._replace(cohort=order.sampler), order.seconds[every - 1 :: every]

    def observe(hparams, model, context):
        loss = population_loss(problem.loss, model, context)
        objective = loss + PENALTY.value(model, config.penalty_scale)
        return {"objective": objective, "f1": problem.measures(model)["f1"]}

    grid = fcojax.grid.product(
        algorithm.hparams_type, client_lr=config.client_lr, penalty_scale=[config.penalty_scale]
    )
    start = problem.init(key)
    _, history = fcojax.sweep(
        algorithm,
        grid,
        start,
        data,
        key[None],
        plan,
        num_rounds=num_rounds,
        eval_every=every,
        observe=observe,
        context=data,
    )
    history = {name: np.asarray(values)[:, 0] for name, values in history.items()}
    if seconds is None:
        history["round"] = np.arange(every, num_rounds + 1, every)
        seconds = clock.seconds(laws, plan, data, key, history)[0]
    first = float(observe(None, start, data)["objective"])
    return seconds, history["objective"], history["f1"], first


def _reached(
    config: Config, seconds: Any, objective: Any, f1: Any, first: float, optimum: float
) -> Row:
    """Return the seconds to each goal at its best rate; ``None`` if no rate reaches it."""
    gap = (objective - optimum) / (first - optimum)
    row = {}
    for goal, there in (("f1", f1 >= GOALS["f1"][1]), ("gap", gap <= GOALS["gap"][1])):
        at = np.where(there.any(axis=1), there.argmax(axis=1), len(seconds))
        best = int(at.min())
        row[goal] = float(seconds[best]) if best < len(seconds) else None
        row[f"{goal} rate"] = float(config.client_lr[int(at.argmin())]) if row[goal] else None
    return row


def _biases(config: Config) -> Iterator[Row]:
    for seed in config.seeds:
        problem = fcojax.problems.synthetic_least_squares(
            num_clients=config.own.num_clients, num_examples=20, dim=10, truth_spread=1.0, seed=seed
        )
        zero = fcojax.transforms.zero()
        minimiser = reference.optimum(problem, zero, 0.0, tolerance=1e-9).params
        algorithm = algorithms.fed_avg(problem.loss)
        rate = fcojax.schedule(5 / (50 + np.arange(config.bias_rounds)))
        hparams = algorithm.hparams_type(client_lr=rate)
        for law in config.participations:
            for correct in (None, "known", "estimated"):
                cohort = PARTICIPATIONS[law](config.own.num_clients)
                plan = fcojax.Plan(fcojax.local_steps(1), cohort, correct=correct)
                model, _ = fcojax.run(
                    algorithm,
                    hparams,
                    jnp.zeros(10),
                    problem.train,
                    jax.random.key(seed),
                    plan,
                    num_rounds=config.bias_rounds,
                    eval_every=config.bias_rounds,
                )
                away = np.linalg.norm(model - minimiser) / np.linalg.norm(minimiser)
                row = {"part": "bias", "law": law, "correct": correct or "none", "seed": seed}
                yield row | {"distance": float(away)}


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the means over seeds, ``None`` where a seed never reaches the goal."""
    times, biases = [], []
    for method in config.methods:
        for speed in config.speeds:
            for server in config.servers:
                entry = {"method": method, "speed": speed, "server": server}
                own = select(rows, part="time", **entry)
                for goal, (text, _) in GOALS.items():
                    found = [row[goal] for row in own]
                    entry[f"seconds to {text}"] = None if None in found else float(np.mean(found))
                times.append(entry)
    for law in config.participations:
        entry = {"law": law}
        for correct in ("none", "known", "estimated"):
            own = select(rows, part="bias", law=law, correct=correct)
            entry[correct] = float(np.mean([row["distance"] for row in own]))
        biases.append(entry)
    return {"times": times, "biases": biases}
