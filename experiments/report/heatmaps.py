"""Maps of a score over two hyperparameters, one per algorithm, on one colour scale."""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from experiments.report.axes import save
from experiments.report.names import axis_label, words
from experiments.report.plots import style
from experiments.report.rows import Row
from experiments.report.summary import Criterion, curves, score


def score_table(
    rows: Sequence[Row], fields: Sequence[str], criterion: Criterion, along: tuple[str, str]
) -> tuple[np.ndarray, list[float], list[float]]:
    """Return the best score at each pair of values of two fields, over all other fields.

    Returns:
      The scores, axes [first field, second field], NaN for points that failed or did not reach the
      last round; and the values of both fields.
    """
    end = max(row["round"] for row in rows)
    places = [fields.index(field) for field in along]
    firsts, seconds = (sorted({row[field] for row in rows}) for field in along)
    table = np.full((len(firsts), len(seconds)), np.nan)
    better = np.fmax if criterion.goal == "max" else np.fmin
    for point, seeds in curves(rows, fields).items():
        first, second = (point[place] for place in places)
        finished = all(curve[-1]["round"] == end for curve in seeds.values())
        value = score(seeds, criterion) if finished else math.nan
        cell = firsts.index(first), seconds.index(second)
        table[cell] = better(table[cell], value if math.isfinite(value) else math.nan)
    return table, firsts, seconds


def maps(
    path: pathlib.Path,
    rows: Mapping[str, Sequence[Row]],
    best: Mapping[str, Mapping[str, float]],
    criterion: Criterion,
    along: tuple[str, str] = ("client_lr", "server_lr"),
) -> pathlib.Path | None:
    """Draw one map per algorithm, with a cross at the reported point and hatched failures.

    Colours show the logarithm of the distance to the best score: 0.98 and 1 differ visibly even if
    0.1 is on the same map.

    Args:
      path: the PNG; a PDF is written beside it.
      rows: the rows of each algorithm.
      best: the reported point of each algorithm.
      criterion: the score.
      along: the hyperparameters along the two axes.

    Returns:
      The PNG, or ``None`` if no algorithm has two values of both hyperparameters.
    """
    tables = {
        label: score_table(rows[label], list(best[label]), criterion, along)
        for label in rows
        if all(len({row.get(field) for row in rows[label]} - {None}) > 1 for field in along)
    }
    if not tables:
        return None
    columns = min(2, len(tables))
    lines = -(-len(tables) // columns)
    figure, grid = plt.subplots(
        lines,
        columns,
        figsize=(3.3 * columns + 0.9, 2.9 * lines),
        squeeze=False,
        layout="constrained",
    )
    finite = np.concatenate([table[np.isfinite(table)] for table, _, _ in tables.values()])
    scale = _Scale(finite, criterion.goal)
    shown = None
    for axis, (label, (table, firsts, seconds)) in zip(grid.flat, tables.items(), strict=False):
        axis.patch.set(edgecolor="#999999", hatch="////")  # visible through masked cells
        shown = axis.imshow(
            np.ma.masked_invalid(scale.colour(table)),
            origin="lower",
            aspect="auto",
            vmin=scale.ends[0],
            vmax=scale.ends[1],
            cmap="cividis",
        )
        axis.set_title(style(label)[0], fontsize=9)
        axis.set_xticks(range(len(seconds)), [f"{value:g}" for value in seconds], fontsize=7.5)
        axis.set_yticks(range(len(firsts)), [f"{value:g}" for value in firsts], fontsize=7.5)
        axis.set_xlabel(axis_label(along[1]), fontsize=8)
        axis.set_ylabel(axis_label(along[0]), fontsize=8)
        column, row = (
            values.index(best[label][field])
            for values, field in ((seconds, along[1]), (firsts, along[0]))
        )
        for colour, width in (("white", 4.0), ("#D55E00", 2.0)):
            axis.plot(column, row, "x", color=colour, markersize=8, markeredgewidth=width)
    for unused in grid.flat[len(tables) :]:
        unused.set_visible(False)
    assert shown is not None
    bar = figure.colorbar(shown, ax=grid, shrink=0.8)
    bar.set_ticks(scale.colour(scale.ticks), labels=[f"{value:.4g}" for value in scale.ticks])
    rounds = f"mean of the last {criterion.last_rounds} rounds"
    bar.set_label(f"{words(criterion.measure)}, {rounds}", fontsize=8)
    bar.ax.tick_params(labelsize=7.5)
    return save(figure, path)


class _Scale:
    """Scores as colours: minus the logarithm of the distance to the best one."""

    def __init__(self, finite: np.ndarray, goal: str) -> None:
        """Fit the scale to the finite scores."""
        if not finite.size:
            finite = np.zeros(1)
        self._best = finite.max() if goal == "max" else finite.min()
        distances = np.abs(finite - self._best)
        # Points that nearly diverged must not give all others the same colour.
        span = min(distances.max(), 3 * np.median(distances)) or distances.max()
        self._span = float(span) or 1.0
        shares = np.array([0.0, 0.01, 0.03, 0.1, 0.3, 1.0])
        self.ticks = self._best - (1 if goal == "max" else -1) * shares * self._span
        worst = self._best - (1 if goal == "max" else -1) * self._span
        self.ends = tuple(float(self.colour(end)) for end in (worst, self._best))

    def colour(self, scores: Any) -> Any:
        """Return a larger number for a better score; within 1 % of the span it is the best."""
        return -np.log10(np.minimum(np.abs(scores - self._best) / self._span, 1.0) + 1e-2)
