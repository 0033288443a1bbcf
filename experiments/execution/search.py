"""The points of a grid that run to the end: all, or those that survive successive halving.

Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization",
AISTATS 2016. Points do not influence each other, so the curve of a survivor is the one it would
have had in the full grid.
"""

import math
from collections.abc import Sequence

import numpy as np

from experiments.report.rows import Row
from experiments.report.summary import Criterion, curves, diverged, rank
from fcojax.types import PyTree

# Each rung keeps one point in FACTOR and multiplies the rounds by it.
FACTOR = 3


def rungs(search: str, num_points: int, num_rounds: int, eval_every: int) -> tuple[int, ...]:
    """Return the rounds at which points are compared; the last is the end of the run.

    Example:
      >>> rungs("halving", 49, 500, 10)
      (10, 50, 160, 500)
      >>> rungs("grid", 49, 500, 10)
      (500,)
    """
    if search == "grid":
        return (num_rounds,)
    blocks = num_rounds // eval_every
    times = max(power for power in range(99) if FACTOR**power <= min(num_points, blocks))
    looks = [max(blocks // FACTOR**power, 1) for power in range(times, 0, -1)]
    return tuple(sorted({look * eval_every for look in looks} | {num_rounds}))


def survivors(
    rows: Sequence[Row], fields: Sequence[str], criterion: Criterion, rung: int, before: int = 0
) -> set[tuple]:
    """Return the points that continue after ``rung``: the best third of those that reached it.

    Points that diverged after the rung ``before`` count as the worst. Early in a run the criterion
    averages over at most the second half of the rounds so far.
    """

    def late(curve: Sequence[Row]) -> bool:
        return curve[-1]["round"] > before and diverged(curve)

    early = criterion._replace(last_rounds=min(criterion.last_rounds, max(rung // 2, 1)))
    until = [row for row in rows if row["round"] <= rung]
    reached = {
        point: seeds
        for point, seeds in curves(until, fields).items()
        if all(curve[-1]["round"] == rung or late(curve) for curve in seeds.values())
    }
    order = sorted(reached, key=lambda point: rank(reached[point], early))
    return set(order[: math.ceil(len(order) / FACTOR)])


def extended_grid(grid: PyTree, edges: dict[str, str]) -> PyTree:
    """Append to a grid the points one step beyond the edges at which the best point lies.

    A step multiplies by the ratio of the last two values, and new points have all values of the
    other hyperparameters.

    Example:
      >>> from fcojax.algorithms import fed_avg
      >>> from fcojax.grid import product
      >>> grid = product(fed_avg.Hparams, client_lr=[0.25, 0.5], server_lr=[1.0, 3.0])
      >>> wider = extended_grid(grid, {"client_lr": "largest"})
      >>> wider.client_lr.tolist(), wider.server_lr.tolist()
      ([0.25, 0.25, 0.5, 0.5, 1.0, 1.0], [1.0, 3.0, 1.0, 3.0, 1.0, 3.0])
    """
    points = np.stack([np.asarray(column, float) for column in grid], axis=1)
    for field, end in edges.items():
        place = grid._fields.index(field)
        values = np.unique(points[:, place])
        last, before = (values[-1], values[-2]) if end == "largest" else (values[0], values[1])
        beyond = points[points[:, place] == last]
        beyond[:, place] = last * last / before
        points = np.concatenate([points, beyond])
    dtypes = [np.asarray(column).dtype for column in grid]
    columns = [column.astype(dtype) for column, dtype in zip(points.T, dtypes, strict=True)]
    return type(grid)(*columns)
