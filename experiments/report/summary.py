"""The best hyperparameters of each algorithm, by a stated criterion."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.report.rows import Row


class Criterion(NamedTuple):
    """How points of a grid are ranked.

    Attributes:
      measure: the column that counts.
      goal: ``max`` or ``min``.
      last_rounds: it is averaged over this many rounds at the end, and over the seeds.
    """

    measure: str
    goal: str
    last_rounds: int


def hparams_of(row: Row, fields: Sequence[str]) -> tuple:
    """The point of the grid a row belongs to."""
    return tuple(row.get(field) for field in fields)


def curves(rows: Sequence[Row], fields: Sequence[str]) -> dict[tuple, dict[int, list[Row]]]:
    """Rows by point of the grid, then by seed, in the order of the rounds."""
    result: dict[tuple, dict[int, list[Row]]] = {}
    for row in rows:
        result.setdefault(hparams_of(row, fields), {}).setdefault(row["seed"], []).append(row)
    for seeds in result.values():
        for curve in seeds.values():
            curve.sort(key=lambda row: row["round"])
    return result


def score(seeds: dict[int, list[Row]], criterion: Criterion) -> float:
    """The criterion of one point; a run that was not finite or diverged scores worst."""
    worst = -math.inf if criterion.goal == "max" else math.inf
    values = []
    for curve in seeds.values():
        last = curve[-1]["round"]
        tail = [row for row in curve if row["round"] > last - criterion.last_rounds]
        numbers = [row[criterion.measure] for row in tail]
        if None in numbers or curve[-1]["status"].startswith("diverged"):
            return worst
        values.append(sum(numbers) / len(numbers))
    return sum(values) / len(values)


def rank(seeds: dict[int, list[Row]], criterion: Criterion) -> tuple[float, float]:
    """What points are sorted by, best first; a tie goes to the lower last objective."""
    sign = -1 if criterion.goal == "max" else 1
    ends = [curve[-1].get("objective") for curve in seeds.values()]
    return (
        sign * score(seeds, criterion),
        sum(math.inf if end is None else end for end in ends) / len(ends),
    )


def at_best(rows: Sequence[Row], label: str, best: dict[str, float]) -> list[Row]:
    """The rows of one algorithm at the hyperparameters that its summary calls best."""
    return [
        row
        for row in rows
        if row["algorithm"] == label and all(row[name] == value for name, value in best.items())
    ]


def first_round(rows: Sequence[Row], measure: str, threshold: float) -> float:
    """The first round by which the mean over seeds has reached the threshold; infinity if none."""
    by_round: dict[int, list[float]] = {}
    for row in rows:
        value = row[measure]
        by_round.setdefault(row["round"], []).append(-math.inf if value is None else value)
    reached = [at for at, values in by_round.items() if sum(values) / len(values) >= threshold]
    return min(reached, default=math.inf)


def summarise(rows: Sequence[Row], fields: Sequence[str], criterion: Criterion) -> dict[str, Any]:
    """One algorithm's best point, its score and verdict, and which points diverged when.

    Args:
      rows: all rows of the algorithm.
      fields: the names of its hyperparameters.
      criterion: how points are ranked. A point that was left behind on the way is not.
    """
    by_point = curves(rows, fields)
    end = max(row["round"] for row in rows)
    finished = {
        point: seeds
        for point, seeds in by_point.items()
        if all(curve[-1]["round"] == end for curve in seeds.values())
    }
    best = min(finished, key=lambda point: rank(finished[point], criterion))
    ends = [curve[-1] for curve in by_point[best].values()]
    diverged = [
        {**dict(zip(fields, point, strict=True)), "seed": seed, "verdict": curve[-1]["status"]}
        for point, seeds in by_point.items()
        for seed, curve in seeds.items()
        if curve[-1]["status"].startswith("diverged")
    ]
    return {
        "best": dict(zip(fields, best, strict=True)),
        "criterion": criterion._asdict(),
        "score": score(by_point[best], criterion),
        "verdict": ends[0]["status"],
        "last": {
            name: sum(end[name] for end in ends) / len(ends)
            for name in ends[0]
            if name not in (*fields, "seed", "round") and _are_numbers(name, ends)
        },
        "points": len(by_point),
        "finished": len(finished),
        "seeds": len(by_point[best]),
        "diverged": diverged,
    }


def _are_numbers(name: str, ends: Sequence[Row]) -> bool:
    return all(isinstance(end.get(name), int | float) for end in ends)
