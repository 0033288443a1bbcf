"""Maps of a score over two hyperparameters, one per algorithm, on one colour scale."""

import math
import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from experiments.report import axes
from experiments.report.names import axis_label, words
from experiments.report.plots import style
from experiments.report.rows import Row
from experiments.report.summary import Criterion, curves, score

_CROSS: dict[str, Any] = {"marker": "x", "linestyle": "", "color": "#D55E00"}
_DIVERGED: dict[str, Any] = {
    "facecolor": "white",
    "edgecolor": "#999999",
    "hatch": "////",
    "linewidth": 0,
}
_STOPPED: dict[str, Any] = {"facecolor": "#DDDDDD", "edgecolor": "none"}
_UNTRIED: dict[str, Any] = {"facecolor": "white", "edgecolor": "#999999", "linewidth": 0.5}


def score_table(
    rows: Sequence[Row], fields: Sequence[str], criterion: Criterion, along: tuple[str, str]
) -> tuple[np.ndarray, list[float], list[float]]:
    """Return the best score at each pair of values of two fields, over all other fields.

    Returns:
      The scores, axes [first field, second field], infinite for points that diverged, NaN for
      those that were stopped before the last round; and the values of both fields.
    """
    end = max(row["round"] for row in rows)
    places = [fields.index(field) for field in along]
    firsts, seconds = (sorted({row[field] for row in rows}) for field in along)
    table = np.full((len(firsts), len(seconds)), np.nan)
    better = np.fmax if criterion.goal == "max" else np.fmin
    for point, seeds in curves(rows, fields).items():
        first, second = (point[place] for place in places)
        value = score(seeds, criterion)
        stopped = math.isfinite(value) and any(curve[-1]["round"] < end for curve in seeds.values())
        cell = firsts.index(first), seconds.index(second)
        table[cell] = better(table[cell], math.nan if stopped else value)
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
    0.1 is on the same map. All maps have one scale and the same axes. Of the values at an end of an
    axis with which every run of every algorithm failed, only the first is shown.

    Args:
      path: the PNG; a PDF is written beside it.
      rows: the rows of each algorithm.
      best: the reported point of each algorithm.
      criterion: the score, by which that point is best.
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
    columns = axes.columns_for(len(tables))
    lines = -(-len(tables) // columns)
    figure, grid = axes.panels(columns, lines, height=1.9)
    finite = np.concatenate([table[np.isfinite(table)] for table, _, _ in tables.values()])
    scale, shown = _Scale(finite, criterion.goal), None
    kept = _kept(tables, 0), _kept(tables, 1)
    wide = {label: _on_axes(table, kept) for label, table in tables.items()}
    for place, (axis, (label, table)) in enumerate(zip(grid, wide.items(), strict=False)):
        shown = _draw(axis, table, scale)
        axis.set_title(style(label)[0])
        own = [best[label][field] for field in along]
        if all(value in values for value, values in zip(own, kept, strict=True)):
            at = kept[1].index(own[1]), kept[0].index(own[0])
            axis.plot(*at, **_CROSS | {"color": "white"}, markersize=8, markeredgewidth=4)
            axis.plot(*at, **_CROSS, markersize=8, markeredgewidth=2)
        left, below = place % columns == 0, place + columns < len(tables)
        axis.set_yticks(*_ticks(kept[0], shown=left))
        axis.set_xticks(*_ticks(kept[1], shown=not below))
        axis.set_ylabel(axis_label(along[0]) if left else "")
        axis.set_xlabel("" if below else axis_label(along[1]))
    bar = figure.colorbar(shown, ax=grid, shrink=0.8, extend="min" if scale.clips else "neither")
    ticks = scale.ticks()
    bar.set_ticks(scale.colour(ticks), labels=[f"{value:g}" for value in ticks])
    bar.set_label(f"{words(criterion.measure)}, mean of the last {criterion.last_rounds} rounds")
    marks: dict[str, Any] = {
        f"reported point, best by {words(criterion.measure)}": Line2D([], [], **_CROSS)
    }
    every = np.concatenate([table.ravel() for table, _, _ in tables.values()])
    if np.isinf(every).any():
        marks["diverged"] = Patch(**_DIVERGED)
    if np.isnan(every).any():
        marks["stopped early"] = Patch(**_STOPPED)
    if any(np.ma.is_masked(table) for table in wide.values()):
        marks["not tried"] = Patch(**_UNTRIED)
    for text in _left_out(tables, kept, along):
        marks[text] = Line2D([], [], linestyle="")
    unused = grid[len(tables) :]
    for axis in unused:
        axis.set_axis_off()
    if unused:
        texts = [textwrap.fill(text, 26) for text in marks]
        unused[0].legend(marks.values(), texts, loc="center").set_in_layout(False)
    else:
        figure.legend(marks.values(), marks.keys(), loc="outside lower center", ncols=2)
    return axes.save(figure, path)


def _draw(axis: Any, table: np.ndarray, scale: "_Scale") -> Any:
    """Draw one map; cells of points that were not tried (masked) stay white."""
    drawn = axis.imshow(
        np.ma.masked_invalid(scale.colour(table)),
        origin="lower",
        aspect="auto",
        vmin=scale.ends[0],
        vmax=scale.ends[1],
        cmap="cividis",
    )
    axis.grid(visible=False)
    for (first, second), value in np.ndenumerate(table):
        if not np.ma.getmaskarray(table)[first, second] and not np.isfinite(value):
            look = _STOPPED if np.isnan(value) else _DIVERGED
            axis.add_patch(Rectangle((second - 0.5, first - 0.5), 1, 1, **look))
    return drawn


Table = tuple[np.ndarray, list[float], list[float]]
Tables = Mapping[str, Table]


def _on_axes(table: Table, kept: Sequence[Sequence[float]]) -> np.ndarray:
    """Return the scores on the axes of all maps, masked where a point was not tried."""
    scores, *values = table
    shape = [len(own) for own in kept]
    wide = np.ma.masked_array(np.full(shape, np.nan), mask=True)
    for (first, second), score_there in np.ndenumerate(scores):
        place = values[0][first], values[1][second]
        if place[0] in kept[0] and place[1] in kept[1]:
            wide[kept[0].index(place[0]), kept[1].index(place[1])] = score_there
    return wide


def _ticks(values: Sequence[float], shown: bool) -> tuple[list[int], list[str]]:
    """Return places and labels of ticks; of many values only powers of ten are labelled."""
    few = len(values) <= 6
    places = [
        place
        for place, value in enumerate(values)
        if few or math.isclose(math.log10(value) % 1, 0, abs_tol=1e-9)
    ]
    return places, [_short(values[place]) if shown else "" for place in places]


def _short(value: float) -> str:
    """Return two digits of a number, without a power of ten for 100."""
    return f"{float(f'{value:.2g}'):g}"


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
            shown = ", ".join(map(_short, left))
            found.append(f"{words(field)} {shown}: all failed")
    return found


class _Scale:
    """Scores as colours: minus the logarithm of the distance to the best one."""

    def __init__(self, finite: np.ndarray, goal: str) -> None:
        """Fit the scale to the finite scores."""
        if not finite.size:
            finite = np.zeros(1)
        self._best = finite.max() if goal == "max" else finite.min()
        self._sign = -1 if goal == "max" else 1
        distances = np.abs(finite - self._best)
        # Points that nearly diverged must not give all others the same colour.
        span = min(distances.max(), 3 * np.median(distances)) or distances.max()
        self._span = float(span) or 1.0
        self.clips = bool(distances.max() > self._span)
        worst = self._best + self._sign * self._span
        self.ends = tuple(float(self.colour(end)) for end in (worst, self._best))

    def colour(self, scores: Any) -> Any:
        """Return a larger number for a better score; within 1 % of the span it is the best."""
        return np.maximum(self._unbounded(scores), -np.log10(1.01))

    def _unbounded(self, scores: Any) -> Any:
        return -np.log10(np.abs(scores - self._best) / self._span + 1e-2)

    def ticks(self) -> list[float]:
        """Return scores evenly apart in colour, each with as few digits as keep its place."""
        shares = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
        return [self._rounded(self._best + self._sign * share * self._span) for share in shares]

    def _rounded(self, score: float) -> float:
        close, place = 0.03 * (self.ends[1] - self.ends[0]), self._unbounded(score)
        short = (float(f"{score:.{digits}g}") for digits in range(1, 6))
        return next((v for v in short if abs(self._unbounded(v) - place) < close), score)
