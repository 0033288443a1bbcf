"""Interactive curves for the page, in SVG: hovering shows values, and curves can be hidden."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import ticker

from experiments.report import plots
from experiments.report.names import without_math, words
from experiments.report.rows import Row

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 508, 12, 258  # the edges of the axes
_DASHES = {"-": "", "--": "7 4", ":": "2 3", "-.": "7 3 2 3"}
_COLOUR = "#555555"  # the colour of the line of the optimum


class Charts(NamedTuple):
    """The curves of a run, as the page draws them.

    Attributes:
      heading: states what all curves have in common.
      legend: for each curve its label, colour and dashes, in the order of the curves.
      charts: for each panel the texts, ticks, paths and numbers of the template.
    """

    heading: str
    legend: Sequence[tuple[str, str, str]]
    charts: Sequence[dict[str, Any]]


def charts(
    panels: Sequence[plots.Panel],
    best_rows: Mapping[str, list[Row]],
    fields: Mapping[str, Sequence[str]],
    optimum: Mapping[str, float] | None = None,
) -> Charts:
    """Return the curves that ``plots.over_rounds`` draws.

    Args:
      panels: the measures to draw, with their labels and axes.
      best_rows: the rows of the best point of each algorithm.
      fields: the hyperparameters that the legend names, for each algorithm.
      optimum: measures of the optimum, drawn as a line in their panels.
    """
    found, legend = [], []
    for panel in panels:
        lines = list(plots.lines(panel, best_rows, fields, words))
        legend = [(line.label, line.colour, _DASHES[line.line]) for line in lines]
        best = (optimum or {}).get(panel.measure)
        if best is not None:
            across = np.unique(np.concatenate([line.across for line in lines]))
            values = np.full((1, across.size), best)
            lines.append(plots.Line("optimum", _COLOUR, ":", across, values, ()))
        found.append(_chart(panel, lines))
    if any(len(chart["curves"]) > len(legend) for chart in found):
        legend.append(("optimum", _COLOUR, _DASHES[":"]))
    return Charts(plots.conditions(best_rows, fields, words), legend, found)


class Scale(NamedTuple):
    """A map from numbers to positions on an axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, values: Any) -> np.ndarray:
        """Return the positions; NaN for numbers that a logarithmic axis cannot show."""
        values = np.asarray(values, float)
        if self.log:
            values = np.log10(np.where(values > 0, values, np.nan))
        return self.start + (values - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, whole: bool = False) -> list[tuple[float, str]]:
        """Return positions and labels of ticks."""
        low, high = self.low, self.high
        if self.log:
            few = ticker.LogLocator(subs=(1.0, 2.0, 5.0) if high - low < 2 else (1.0,))
            values = np.asarray(few.tick_values(10**low, 10**high))
        else:
            values = np.asarray(
                ticker.MaxNLocator(5, steps=[1, 2, 5, 10], integer=whole).tick_values(low, high)
            )
        places = self(values)
        inside = (places - self.start) * (places - self.end) <= 1e-6
        return [(place, f"{v:g}") for place, v in zip(places[inside], values[inside], strict=True)]


def scale(values: np.ndarray, start: float, end: float, log: bool, margin: float) -> Scale:
    """Return a scale that shows all finite values; ``margin`` is a share of their range."""
    values = values[np.isfinite(values) & (values > 0 if log else True)]
    if log:
        values = np.log10(values)
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = low - 0.5, high + 0.5
    space = margin * (high - low)
    return Scale(low - space, high + space, start, end, log)


def _chart(panel: plots.Panel, lines: Sequence[plots.Line]) -> dict[str, Any]:
    every = np.concatenate([line.values.ravel() for line in lines])
    x = scale(
        np.concatenate([line.across for line in lines]), LEFT, RIGHT, plots.is_log_across(panel), 0
    )
    y = scale(every, BOTTOM, TOP, panel.log, 0.04)
    # Values that are zero up to rounding, or just below, stay visible at the foot of the axis.
    least = 10**y.low if panel.log else -np.inf
    drawn, numbers = [], []
    for line in lines:
        mean, low, high = (reduce(line.values, axis=0) for reduce in (np.mean, np.min, np.max))
        places = x(line.across)
        up, *ends = (y(np.maximum(values, least)) for values in (mean, low, high))
        parts = zip(places, up, *ends, strict=True)
        drawn.append(
            {
                "path": _path(places, up),
                "band": _band(list(parts)) if len(line.values) > 1 else "",
                "crosses": [(float(x(across)), float(y(value))) for across, value in line.ends],
            }
        )
        columns = places, line.across, mean, *((low, high) if len(line.values) > 1 else ())
        numbers.append([[_rounded(value) for value in column] for column in columns])
    return {
        "label": without_math(panel.label),
        "across": plots.across_label(panel),
        "x": x.ticks(),
        "y": y.ticks(panel.whole),
        "curves": drawn,
        "numbers": numbers,
    }


def _rounded(value: float) -> float | None:
    """Return a number with five digits, or ``None`` if it is not finite."""
    return float(f"{value:.5g}") if np.isfinite(value) else None


def _path(x: np.ndarray, y: np.ndarray) -> str:
    """Return a line through the finite points, with a break at each gap."""
    finite = np.isfinite(x) & np.isfinite(y)
    after_gap = ~np.concatenate([[False], finite[:-1]])
    return " ".join(
        f"{'M' if begins else 'L'}{across:.1f},{up:.1f}"
        for across, up, begins in zip(x[finite], y[finite], after_gap[finite], strict=True)
    )


def _band(parts: list[tuple[float, ...]]) -> str:
    """Return the area between the smallest and the largest value, if both are on the axes."""
    shapes, inside = [], []
    for part in [*parts, (np.nan,) * 4]:
        if np.isfinite(part).all():
            inside.append(part)
        elif inside:
            around = [(x, low) for x, _, low, _ in inside]
            around += [(x, high) for x, _, _, high in reversed(inside)]
            shapes.append("M" + "L".join(f"{across:.1f},{up:.1f}" for across, up in around) + "Z")
            inside = []
    return "".join(shapes)
