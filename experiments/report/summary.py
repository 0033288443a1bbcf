"""The best hyperparameters of each algorithm by a criterion."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from experiments.report.rows import Row, by_seed, hparams_of, select
from fcojax.problems import identified

SUPPORT = "support"  # a column with one number for each support, whose magnitude has no meaning
RIGHT = "right_"  # begins the columns that say which held-out examples are right
PATTERNS = (SUPPORT, "rank")  # the summary gives the round from which these are final


class Criterion(NamedTuple):
    """How points of a grid are ranked.

    Attributes:
      measure: the column that is averaged over the last rounds and the seeds.
      goal: ``max`` or ``min``.
      last_rounds: the number of rounds at the end that count.
      within: scores within this distance of the best count as ties.
      reach: of tied points, the one whose mean over the seeds reaches this value first is best.
        Without it the sparsest is, by the column ``density``; then that of the lowest objective.
    """

    measure: str
    goal: str
    last_rounds: int
    within: float = 0.0
    reach: float | None = None


def curves(rows: Sequence[Row], fields: Sequence[str]) -> dict[tuple, dict[int, list[Row]]]:
    """Return the rows by point of the grid, then by seed, in the order of the rounds."""
    result: dict[tuple, dict[int, list[Row]]] = {}
    for row in sorted(rows, key=lambda row: row["round"]):
        result.setdefault(hparams_of(row, fields), {}).setdefault(row["seed"], []).append(row)
    return result


def scores(seeds: dict[int, list[Row]], criterion: Criterion) -> list[float]:
    """Return a point's score for each seed; infinite if it diverged or was not finite."""
    worst = -math.inf if criterion.goal == "max" else math.inf
    values = []
    for _, curve in sorted(seeds.items()):
        last = curve[-1]["round"]
        tail = [row for row in curve if row["round"] > last - criterion.last_rounds]
        numbers = [row[criterion.measure] for row in tail]
        values.append(worst if None in numbers or diverged(curve) else sum(numbers) / len(numbers))
    return values


def score(seeds: dict[int, list[Row]], criterion: Criterion) -> float:
    """Return the score of one point, averaged over its seeds."""
    values = scores(seeds, criterion)
    return sum(values) / len(values)


def rank(seeds: dict[int, list[Row]], criterion: Criterion) -> tuple[float, float]:
    """Return the sorting key of a point, best first; the lower last objective breaks ties."""
    sign = -1 if criterion.goal == "max" else 1
    return sign * score(seeds, criterion), _last(seeds, "objective")


def diverged(curve: Sequence[Row]) -> bool:
    """Return whether a run had diverged by its last row."""
    return curve[-1]["status"].startswith("diverged")


def _last(seeds: dict[int, list[Row]], name: str) -> float:
    """Return the mean over the seeds of a column in the last row; infinity without a number."""
    ends = [curve[-1].get(name) for curve in seeds.values()]
    return sum(math.inf if end is None else end for end in ends) / len(ends)


def _leader(points: dict[tuple, dict[int, list[Row]]], criterion: Criterion) -> tuple:
    """Return the best point; ``Criterion`` describes how ties are broken."""
    found = {point: score(seeds, criterion) for point, seeds in points.items()}
    top = max(found.values()) if criterion.goal == "max" else min(found.values())

    def order(point: tuple) -> tuple:
        seeds = points[point]
        if criterion.reach is None:
            # The objectives of two strengths of the penalty do not compare.
            return _last(seeds, "density"), _last(seeds, "objective")
        every = [row for curve in seeds.values() for row in curve]
        reached = first_round(every, criterion.measure, criterion.reach, criterion.goal)
        return reached, rank(seeds, criterion)

    tied = (p for p, value in found.items() if value == top or abs(value - top) <= criterion.within)
    return min(tied, key=order)


def edges(best: dict[str, float], points: Iterable[tuple]) -> dict[str, str]:
    """Return the hyperparameters whose best value is the smallest or largest of the grid.

    Zero is not an edge: the grid cannot be extended beyond a momentum of zero.

    Example:
      >>> edges({"client_lr": 0.1, "server_lr": 1.0}, [(0.01, 1.0), (0.1, 1.0)])
      {'client_lr': 'largest'}
    """
    found = {}
    for field, value, tried in zip(best, best.values(), zip(*points, strict=True), strict=True):
        if value and min(tried) < max(tried) and value in (min(tried), max(tried)):
            found[field] = "smallest" if value == min(tried) else "largest"
    return found


def at_best(rows: Sequence[Row], label: str, best: dict[str, float]) -> list[Row]:
    """Return the rows of one algorithm at its best hyperparameters."""
    return select(rows, algorithm=label, **best)


def best_scores(rows: Sequence[Row], label: str, entry: dict, criterion: Criterion) -> np.ndarray:
    """Return the score of one algorithm at its best point for each seed."""
    [seeds] = curves(at_best(rows, label, entry["best"]), ()).values()
    return np.array(scores(seeds, criterion))


def best_right(rows: Sequence[Row], label: str, entry: dict) -> np.ndarray | None:
    """Return which held-out examples one algorithm has right at its best point, in the last round.

    The booleans have axes [seeds, examples], of which the last may be no examples, and are false.
    There are none if the run does not record them.
    """
    [seeds] = curves(at_best(rows, label, entry["best"]), ()).values()
    ends = [curve[-1] for _, curve in sorted(seeds.items())]
    names = [f"{RIGHT}{place}" for place in range(len(ends[0]))]
    words = [[end[name] for name in names if name in end] for end in ends]
    if not words[0] or any(None in own for own in words):
        return None
    bits = np.array(words, np.uint32)[..., None] >> np.arange(32, dtype=np.uint32)
    return (bits & 1).astype(bool).reshape(len(ends), -1)


def grid_scores(rows: Sequence[Row], label: str, entry: dict, criterion: Criterion) -> np.ndarray:
    """Return the score of one algorithm at every point for each seed, axes [points, seeds]."""
    by_point = curves(select(rows, algorithm=label), list(entry["best"]))
    return np.array([scores(seeds, criterion) for seeds in by_point.values()])


def first_round(rows: Sequence[Row], measure: str, threshold: float, goal: str = "max") -> float:
    """Return the first round whose mean over the seeds reaches the threshold, or infinity."""
    sign = 1 if goal == "max" else -1
    by_round: dict[int, list[float]] = {}
    for row in rows:
        value = row[measure]
        by_round.setdefault(row["round"], []).append(-math.inf if value is None else sign * value)
    reached = [
        at for at, values in by_round.items() if sum(values) / len(values) >= sign * threshold
    ]
    return min(reached, default=math.inf)


def first_rounds(
    rows: Sequence[Row], measure: str, threshold: float, goal: str, never: int
) -> np.ndarray:
    """Return ``first_round`` for each seed, ``never`` for seeds that do not reach it."""
    reached = [first_round(own, measure, threshold, goal) for own in by_seed(rows).values()]
    return np.minimum(reached, never)


def final_from(values: ArrayLike, rounds: ArrayLike) -> np.ndarray:
    """Return the round after which the values no longer change.

    NaN for values that differ between the last two evaluations, or if there is only one evaluation.
    The evaluations are along the first axis, their rounds ascend.

    Example:
      >>> final_from([[5, 5], [4, 4], [4, 3]], [10, 20, 30]).tolist()
      [20.0, nan]
    """
    found = identified(np.asarray(values), np.asarray(rounds)).astype(float)
    found[found == np.max(rounds)] = np.nan
    return found


def _all_final_from(seeds: dict[int, list[Row]], name: str) -> float:
    """Return the round after which no seed changes a column; NaN if one changes at the end."""
    found = []
    for curve in seeds.values():
        # Rows from before the run had this column do not contain it.
        values = np.array([[row.get(name)] for row in curve], float)
        end = final_from(values, [row["round"] for row in curve])[0]
        found.append(np.nan if diverged(curve) else end)
    return float(np.max(found))


def summarise(rows: Sequence[Row], fields: Sequence[str], criterion: Criterion) -> dict[str, Any]:
    """Return an algorithm's best point with its score and verdict, and the points that diverged.

    The rows are all of the algorithm, ``fields`` the names of its hyperparameters; points that were
    stopped early are not ranked.
    """
    by_point = curves(rows, fields)
    end = max(row["round"] for row in rows)
    finished = {
        point: seeds
        for point, seeds in by_point.items()
        if all(curve[-1]["round"] == end for curve in seeds.values())
    }
    best = _leader(finished, criterion)
    seeds = by_point[best]
    ends = [curve[-1] for curve in seeds.values()]
    named, value = dict(zip(fields, best, strict=True)), score(seeds, criterion)
    measure, goal, target = criterion.measure, criterion.goal, criterion.reach
    return {
        "best": named,
        # If all points diverged, none is best and edges have no meaning.
        # Points that diverged or that a search stopped belong to the grid too.
        "edges": edges(named, by_point) if math.isfinite(value) else {},
        "criterion": criterion._asdict(),
        "score": value,
        "verdict": ends[0]["status"],
        "last": {
            name: sum(end[name] for end in ends) / len(ends)
            for name in ends[0]
            if name not in (*fields, "seed", "round", SUPPORT)
            and not name.startswith(RIGHT)
            and all(isinstance(end.get(name), int | float) for end in ends)
        },
        "final_from": {name: _all_final_from(seeds, name) for name in PATTERNS if name in ends[0]},
        "reached": None
        if target is None
        else [first_round(own, measure, target, goal) for _, own in sorted(seeds.items())],
        "points": len(by_point),
        "finished": len(finished),
        "seeds": len(seeds),
        "diverged": [
            {**dict(zip(fields, point, strict=True)), "seed": seed, "verdict": curve[-1]["status"]}
            for point, own in by_point.items()
            for seed, curve in own.items()
            if diverged(curve)
        ],
    }
