"""Rows and summary of both tables: limits at the safe step, and curves at the tuned step."""

from collections.abc import Iterator

import numpy as np

from experiments.report.rows import Row, Summary, select
from experiments.studies.compare.methods import METHODS
from experiments.studies.compare.problem import Task, lasso
from experiments.studies.compare.runs import points, run
from experiments.study import Config
from fcojax.engine.grid import num_points, take


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of both tables, problem by problem."""
    for problem in config.problems:
        task, facts = lasso(config, problem)
        yield {"part": "problem", "problem": problem} | facts
        for name in config.methods:
            for row in limits(config, task, name):
                yield {"part": "limit", "problem": problem, "method": name} | row
            for row in tuned(config, task, name, config[problem].num_rounds):
                yield {"problem": problem, "method": name} | row


def limits(config: Config, task: Task, name: str) -> Iterator[Row]:
    """Yield the end point of a method at the safe step, and at half of it."""
    step = config.limit_prox_step * task.smoothness if METHODS[name].tuned == "prox" else 1.0
    for share in (1.0, 0.5):
        grid = points(config, task, name, [share * step])
        history, _ = run(config, task, name, grid, config.limit_rounds, config.limit_rounds // 10)
        yield {
            "step_share": share,
            "distance": float(history["distance"][0, :, -1].mean()),
            "nonzeros": float(history["nonzeros"][0, :, -1].mean()),
        }


def tuned(config: Config, task: Task, name: str, num_rounds: int) -> Iterator[Row]:
    """Yield all points of a method's grid, and the curves of the best one."""
    factors = config.prox_factors if METHODS[name].tuned == "prox" else config.step_factors
    grid = points(config, task, name, factors)
    history, floats = run(config, task, name, grid, num_rounds, 1)
    within = history["distance"] <= config.tolerance
    reached, first = within.any(axis=-1), within.argmax(axis=-1)
    rounds = np.where(reached, first + 1, np.inf).mean(axis=-1)
    sent = {
        f"floats_{way}": np.where(
            reached, np.take_along_axis(total, first[..., None], axis=-1)[..., 0], np.inf
        ).mean(axis=-1)
        for way, total in floats.items()
    }
    lasts = history["distance"][..., -1].mean(axis=-1)
    best = np.lexsort([lasts, rounds])[0]  # NaN comes last
    for i in range(num_points(grid)):
        row = {"part": "point", "rounds": float(rounds[i])}
        row |= {name: float(numbers[i]) for name, numbers in sent.items()}
        row |= {"last_distance": float(lasts[i]), "best": bool(i == best)}
        rates = {field: float(x) for field, x in take(grid, i)._asdict().items()}
        yield row | rates
    for j, distances in enumerate(history["distance"][best]):
        for r, distance in enumerate(distances):
            yield {
                "part": "curve",
                "seed": config.seeds[j],
                "round": r + 1,
                "distance": float(distance),
                "floats": float(sum(total[best, j, r] for total in floats.values())),
            }


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return, by problem and method, the limits and the best point of the grid."""
    tables = {}
    for problem in config.problems:
        own = select(rows, problem=problem)
        [facts] = select(own, part="problem")
        tables[problem] = {"problem": facts, "methods": {}}
        for name in config.methods:
            far, near = select(own, method=name, part="limit")
            [best] = select(own, method=name, part="point", best=True)
            tables[problem]["methods"][METHODS[name].text] = {
                "limit": far["distance"],
                "limit at half the step": near["distance"],
                "nonzeros": far["nonzeros"],
            } | {key: value for key, value in best.items() if key not in _KEYS}
    return tables


_KEYS = ("part", "problem", "method", "best")
