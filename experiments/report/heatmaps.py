"""Maps of a score over two hyperparameters, one per algorithm, on one colour scale."""

import math
import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.report import axes
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
    chosen_by: str = "",
) -> pathlib.Path | None:
    """Draw one map per algorithm, with a cross at the reported point and hatched failures.

    Colours show the logarithm of the distance to the best score: 0.98 and 1 differ visibly even if
    0.1 is on the same map. All maps have one scale. Of the values at an end of an axis with which
    every run of every algorithm failed, only the first is shown.

    Args:
      path: the PNG; a PDF is written beside it.
      rows: the rows of each algorithm.
      best: the reported point of each algorithm.
      criterion: the score.
      along: the hyperparameters along the two axes.
      chosen_by: what the reported point is best by, if it is not the score.

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
    columns = axes.columns_for(len(tables))
    lines = -(-len(tables) // columns)
    with plt.style.context(axes.HOUSE):
        figure, grid = plt.subplots(
            lines, columns, figsize=(7.0, 2.1 * lines + 0.9), squeeze=False, layout="constrained"
        )
    finite = np.concatenate([table[np.isfinite(table)] for table, _, _ in tables.values()])
    scale, shown = _Scale(finite, criterion.goal), None
    kept = [_kept(tables, axis) for axis in (0, 1)]
    for axis, (label, (table, *values)) in zip(grid.flat, tables.items(), strict=False):
        firsts, seconds = ([v for v in own if v in k] for own, k in zip(values, kept, strict=True))
        inside = [np.isin(own, k) for own, k in zip(values, kept, strict=True)]
        axis.patch.set(edgecolor="#999999", hatch="////")  # shows through masked cells
        shown = axis.imshow(
            np.ma.masked_invalid(scale.colour(table[np.ix_(*inside)])),
            origin="lower",
            aspect="auto",
            vmin=scale.ends[0],
            vmax=scale.ends[1],
            cmap="cividis",
        )
        axis.grid(visible=False)
        axis.set_xticks(range(len(seconds)), [f"{value:g}" for value in seconds], rotation=45)
        axis.set_yticks(range(len(firsts)), [f"{value:g}" for value in firsts])
        with plt.style.context(axes.HOUSE):
            axis.set_title(style(label)[0])
        if axis in grid[:, 0]:
            axis.set_ylabel(axis_label(along[0]))
        axis.set_xlabel(axis_label(along[1]))
        if all(best[label][f] in own for f, own in zip(along, (firsts, seconds), strict=True)):
            place = seconds.index(best[label][along[1]]), firsts.index(best[label][along[0]])
            for colour, width in (("white", 4.0), ("#D55E00", 2.0)):
                axis.plot(*place, "x", color=colour, markersize=8, markeredgewidth=width)
    assert shown is not None
    unused = list(grid.flat[len(tables) :])
    for axis in unused:
        axis.set_axis_off()
    with plt.style.context(axes.HOUSE):
        bar = figure.colorbar(shown, ax=grid, shrink=0.8)
    bar.set_ticks(scale.colour(scale.ticks), labels=[f"{value:.4g}" for value in scale.ticks])
    bar.set_label(f"{words(criterion.measure)}, mean of the last {criterion.last_rounds} rounds")
    by = chosen_by or words(criterion.measure)
    marks = [
        Line2D([], [], marker="x", linestyle="", color="#D55E00", markersize=7, markeredgewidth=2),
        Patch(facecolor="white", edgecolor="#999999", hatch="////"),
    ]
    texts = [f"reported point, best by {by}", "diverged, or stopped"]
    texts += _left_out(tables, kept, along)
    marks += [Line2D([], [], linestyle="")] * (len(texts) - 2)
    with plt.style.context(axes.HOUSE):
        if unused:
            unused[0].legend(marks, [textwrap.fill(text, 26) for text in texts], loc="center")
        else:
            figure.legend(marks, texts, loc="outside lower center", ncols=2)
    return axes.save(figure, path)


Tables = Mapping[str, tuple[np.ndarray, list[float], list[float]]]


def _kept(tables: Tables, axis: int) -> list[float]:
    """Return the values along an axis but those beyond the first with which all runs failed."""
    worked: dict[float, bool] = {}
    for table, *values in tables.values():
        anything = np.atleast_1d(np.isfinite(table).any(axis=1 - axis))
        for value, some in zip(values[axis], anything, strict=True):
            worked[value] = worked.get(value, False) or bool(some)
    values = sorted(worked)
    found = [at for at, value in enumerate(values) if worked[value]] or [0]
    return values[max(0, found[0] - 1) : found[-1] + 2]


def _left_out(tables: Tables, kept: Sequence[Sequence[float]], along: Sequence[str]) -> list[str]:
    """Return the sentences on values that are left out."""
    found = []
    for axis, (own, field) in enumerate(zip(kept, along, strict=True)):
        every = {value for _, *values in tables.values() for value in values[axis]}
        if left := sorted(every - set(own)):
            shown = ", ".join(f"{value:g}" for value in left)
            found.append(f"{words(field)} {shown}: all failed")
    return found


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
