"""Axes in one style, and one legend below them."""

import logging
import pathlib
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import ticker

from experiments.report.look import applied
from experiments.report.rows import Row, by_seed, column

# fontTools logs every glyph that it omits from a PDF.
logging.getLogger("fontTools").setLevel(logging.WARNING)

# Type 42 fonts can be searched and edited; Computer Modern for mathematics.
_JOURNAL: dict[Any, Any] = {"pdf.fonttype": 42, "mathtext.fontset": "cm", "svg.fonttype": "none"}

_TITLE_WIDTH = 84  # characters in a line above a figure


def panels(num_columns: int, num_lines: int = 1, height: float = 2.6) -> tuple[Any, list[Any]]:
    """Return a figure 7 inches wide with ``height`` inches per row of axes, and its axes."""
    figure, grid = plt.subplots(
        num_lines, num_columns, figsize=(7.0, height * num_lines + 0.6), squeeze=False
    )
    return figure, list(grid.flat)


def save(figure: Any, path: pathlib.Path) -> pathlib.Path:
    """Save a figure as PNG and as PDF, and close it; return the path of the PNG."""
    applied(figure)
    return _written(figure, path)


def _written(figure: Any, path: pathlib.Path) -> pathlib.Path:
    with matplotlib.rc_context(_JOURNAL):
        figure.savefig(path, dpi=150)
        figure.savefig(path.with_suffix(".pdf"))
    plt.close(figure)
    return path


def describe(
    axis: Any, xlabel: str, ylabel: str, *, title: str = "", log: str = "", whole: bool = False
) -> None:
    """Label axes; ``log`` names the logarithmic ones (``"xy"``), ``whole`` sets integer ticks."""
    axis.set_xlabel(xlabel, fontsize=8)
    axis.set_ylabel(ylabel, fontsize=8)
    axis.set_title(title, fontsize=8.5)
    if "x" in log:
        axis.set_xscale("log")
    if "y" in log:
        axis.set_yscale("log")
        _enough_ticks(axis)
    if whole:
        axis.yaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axis.tick_params(labelsize=7.5)
    axis.tick_params(which="minor", labelsize=6.5)
    axis.grid(alpha=0.3, linewidth=0.5)
    axis.spines[["top", "right"]].set_visible(False)


def _enough_ticks(axis: Any) -> None:
    """Put ticks at 1, 2 and 5, in plain numbers, on an axis that spans less than two decades."""
    low, high = axis.get_ylim()
    if low > 0 and high / low < 100:
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(ticker.NullFormatter())


def literal(text: str) -> str:
    """Return a text that matplotlib draws unchanged, without reading ``$`` as mathematics."""
    return text.replace("$", r"\$")


def shaded(values: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return the values of a parameter with their colours, dark to light."""
    values = list(values)
    colours = (plt.get_cmap("viridis")(place) for place in np.linspace(0, 0.88, len(values)))
    return list(zip(values, colours, strict=True))


def curve(axis: Any, rows: Iterable[Row], x: str, y: str, line: str = "-", **style: Any) -> None:
    """Draw one column of the rows over another."""
    axis.plot(column(rows, x), column(rows, y), line, **style)


def quantiles(axis: Any, rows: Iterable[Row], x: str, colour: Any, alpha: float = 0.2) -> None:
    """Fill the area between the columns ``low`` and ``high`` of the rows."""
    low, high = column(rows, "low"), column(rows, "high")
    axis.fill_between(column(rows, x), low, high, color=colour, alpha=alpha, linewidth=0)


def seeds(axis: Any, rows: Sequence[Row], x: str, y: str, line: str = "-", **style: Any) -> None:
    """Draw the mean over the seeds of one column over another, and the range."""
    curves = list(by_seed(rows).values())
    lines = np.array([column(one, y) for one in curves])
    band(axis, column(curves[0], x), lines, line, **style)


def band(
    axis: Any, x: Sequence[float] | np.ndarray, lines: np.ndarray, line: str = "-", **style: Any
) -> None:
    """Draw the mean over the first axis of ``lines`` (the seeds), and the range."""
    axis.plot(x, lines.mean(axis=0), line, **{"linewidth": 1.5, **style})
    if len(lines) > 1:
        low, high = lines.min(axis=0), lines.max(axis=0)
        axis.fill_between(x, low, high, color=style.get("color"), alpha=0.2, linewidth=0)


def finish(figure: Any, path: pathlib.Path, title: str, num_columns: int = 3) -> pathlib.Path:
    """Add one legend for all axes, save the figure and close it."""
    named = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.suptitle(textwrap.fill(title, _TITLE_WIDTH), fontsize=10)
    figure.legend(
        list(named.values()),
        list(named),
        loc="lower center",
        ncols=num_columns,
        frameon=False,
        fontsize=7.5,
    )
    lines = -(-len(named) // num_columns) * applied(figure)
    figure.tight_layout(rect=(0, (0.19 * lines + 0.05) / figure.get_figheight(), 1, 1))
    return _written(figure, path)
