"""Axes in one style, and one legend below them."""

import logging
import math
import pathlib
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import ticker

from experiments.report.look import size_of, title_of
from experiments.report.rows import Row, by_seed, column

# fontTools logs every glyph that it omits from a PDF, and odd dates of fonts.
logging.getLogger("fontTools").setLevel(logging.ERROR)

_TITLE_WIDTH = 84  # characters in a line above a figure


def panels(num_columns: int, num_lines: int = 1, height: float = 2.6) -> tuple[Any, list[Any]]:
    """Return a figure 7 inches wide with ``height`` inches per row of axes, and its axes."""
    figure, grid = plt.subplots(
        num_lines,
        num_columns,
        figsize=size_of(7.0, height * num_lines + 0.6),
        squeeze=False,
        layout="constrained",
    )
    return figure, list(grid.flat)


def columns_for(count: int) -> int:
    """Return the number of columns in which so many panels leave at most one place free.

    Example:
      >>> [columns_for(count) for count in range(1, 8)]
      [1, 2, 3, 2, 3, 3, 2]
    """
    return next((n for n in (3, 2) if -count % n <= 1), 3) if count > 3 else count


def save(figure: Any, path: pathlib.Path) -> pathlib.Path:
    """Save a figure as PNG and as PDF, and close it; return the path of the PNG.

    A label that is longer than its axis breaks into two lines, and then shrinks to fit.
    """
    figure.draw_without_rendering()
    for axis in figure.axes:
        label = axis.yaxis.label
        if label.get_window_extent().height > axis.get_window_extent().height:
            label.set_text(_in_two(label.get_text()))
            figure.draw_without_rendering()
            share = axis.get_window_extent().height / label.get_window_extent().height
            label.set_fontsize(label.get_fontsize() * min(1.0, share))
    figure.savefig(path)
    # Without a date, equal figures are equal files.
    figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
    plt.close(figure)
    return path


def describe(
    axis: Any, xlabel: str, ylabel: str, *, title: str = "", log: str = "", whole: bool = False
) -> None:
    """Label axes; ``log`` names the logarithmic ones (``"xy"``), ``whole`` sets integer ticks."""
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.set_title(title)
    if "x" in log:
        axis.set_xscale("log", nonpositive="mask")
        _enough_ticks(axis.xaxis)
    if "y" in log:
        axis.set_yscale("log")
        _enough_ticks(axis.yaxis)
    if whole:
        axis.yaxis.set_major_locator(ticker.MaxNLocator(integer=True))


def _enough_ticks(axis: Any) -> None:
    """Put few ticks, in plain numbers, on a logarithmic axis that spans less than two decades."""
    low, high = sorted(axis.get_view_interval())
    if low > 0 and high / low < 100:
        # Below a factor of five there would be one tick at 1, 2 and 5, or none.
        few = ticker.MaxNLocator(5) if high / low < 5 else ticker.LogLocator(subs=(1.0, 2.0, 5.0))
        axis.set_major_locator(few)
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(ticker.NullFormatter())


def power(value: float) -> str:
    """Return a power of ten as mathematics, and other numbers in plain digits.

    Example:
      >>> power(1e-6), power(0.2)
      ('$10^{-6}$', '0.2')
    """
    exponent = round(math.log10(value))
    return f"$10^{{{exponent}}}$" if value == float(f"1e{exponent}") else f"{value:g}"


def literal(text: str) -> str:
    """Return a text that matplotlib draws unchanged, without reading ``$`` as mathematics."""
    return text.replace("$", r"\$")


def shaded(values: Iterable[Any], of: str = "viridis") -> list[tuple[Any, Any]]:
    """Return the values of a parameter with their colours, dark to light.

    Args:
      values: the values.
      of: the colour map; give each parameter of a figure its own, such as ``"Blues_r"``.
    """
    values = list(values)
    light = 0.88 if of == "viridis" else 0.6
    colours = (plt.get_cmap(of)(place) for place in np.linspace(0, light, len(values)))
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


def head(figure: Any, title: str) -> None:
    """Write a heading above a figure, which breaks before its parenthesis if it is long."""
    if text := title_of(title):
        figure.suptitle(_broken(text))


def finish(
    figure: Any, path: pathlib.Path, title: str, num_columns: int = 3, spare: Any = None
) -> pathlib.Path:
    """Add one legend for all axes, save the figure and close it.

    Args:
      figure: the figure.
      path: the PNG; a PDF is written beside it.
      title: the heading; what stands in parentheses at its end goes to a second line if it is long.
      num_columns: the columns of the legend below the axes.
      spare: axes that show nothing, which take the legend.
    """
    named = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    head(figure, title)
    if spare is None:
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=num_columns)
    else:
        spare.set_axis_off()
        texts = [label.replace(" (", "\n(") for label in named]
        place = {"loc": "center left", "bbox_to_anchor": (-0.15, 0.5)}
        # The axes keep their size, whatever the length of the labels.
        spare.legend(named.values(), texts, **place).set_in_layout(False)
    return save(figure, path)


def _in_two(text: str) -> str:
    """Return a text with a line break at the space nearest to its middle, not in mathematics."""
    spaces = [
        at for at, letter in enumerate(text) if letter == " " and text.count("$", 0, at) % 2 == 0
    ]
    if not spaces:
        return text
    at = min(spaces, key=lambda place: abs(place - len(text) / 2))
    return f"{text[:at]}\n{text[at + 1 :]}"


def _broken(title: str) -> str:
    """Return a heading with a line break before its parenthesis, if it is too long for a line."""
    head, bracket, rest = title.partition(" (")
    if len(title) > _TITLE_WIDTH and bracket:
        title = f"{head}\n({rest}"
    return "\n".join(textwrap.fill(line, _TITLE_WIDTH) for line in title.split("\n"))
