"""Figures in one style: axes, curves with their range over the seeds, and one legend below."""

import contextlib
import logging
import math
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import ticker

# fontTools logs every glyph that it omits from a PDF, and odd dates of fonts.
logging.getLogger("fontTools").setLevel(logging.ERROR)

_HOUSE = pathlib.Path(__file__).with_name("house.mplstyle")
_LOOK: dict[str, Any] = {}  # what the user of ``house`` changes


@contextlib.contextmanager
def house(font: str | None = None, font_size: float | None = None, **look: Any) -> Iterator[None]:
    """Draw the figures within the block by the style sheet, with a user's changes.

    Args:
      font: the family, such as ``serif``.
      font_size: the size of the labels of axes in points; other texts are in proportion.
      look: ``labels``, names of methods by their label; ``size``, width and height in inches; and
        ``title``, the heading, which is empty for none.
    """
    _LOOK.update(look)
    changes = {"font.size": font_size, "font.family": font}
    try:
        with plt.style.context([_HOUSE, {name: value for name, value in changes.items() if value}]):
            yield
    finally:
        _LOOK.clear()


def name_of(algorithm: str, name: str) -> str:
    """Return the user's name for an algorithm, or ``name`` if there is none."""
    return (_LOOK.get("labels") or {}).get(algorithm, name)


def panels(num_columns: int, num_lines: int = 1, height: float = 2.6) -> tuple[Any, list[Any]]:
    """Return a figure 7 inches wide with ``height`` inches per row of axes, and its axes."""
    size = _LOOK.get("size") or (7.0, height * num_lines + 0.6)
    look: dict[str, Any] = {"figsize": size, "squeeze": False, "layout": "constrained"}
    figure, grid = plt.subplots(num_lines, num_columns, **look)
    return figure, list(grid.flat)


def grid_of(count: int, height: float = 2.6) -> tuple[Any, list[Any]]:
    """Return a figure for so many panels, in columns that leave at most one place free."""
    columns = next((n for n in (3, 2) if -count % n <= 1), 3) if count > 3 else count
    return panels(columns, -(-count // columns), height)


def save(figure: Any, path: pathlib.Path) -> pathlib.Path:
    """Save a figure as PNG and as PDF, and close it; return the path of the PNG.

    A label that is longer than its axis breaks into two lines.
    """
    figure.draw_without_rendering()
    for axis in figure.axes:
        # Axes that grow may get another tick, for whose label the layout has left no place.
        axis.xaxis.set_major_locator(ticker.FixedLocator(axis.get_xticks()))
        text, label = axis.get_ylabel(), axis.yaxis.label
        if label.get_window_extent().height > axis.get_window_extent().height:
            # The spaces outside of mathematics.
            spaces = [at.start() for at in re.finditer(r" (?=[^$]*(?:\$[^$]*\$[^$]*)*$)", text)]
            at = min(spaces, key=lambda place: abs(place - len(text) / 2), default=len(text))
            label.set_text(f"{text[:at]}\n{text[at + 1 :]}".strip())
    figure.savefig(path)
    figure.set_layout_engine("none")  # the PDF keeps the places of the PNG
    # Without a date, equal figures are equal files.
    figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
    plt.close(figure)
    return path


def describe(
    axis: Any, xlabel: str, ylabel: str, *, title: str = "", log: str = "", whole: bool = False
) -> None:
    """Label axes; ``log`` names the logarithmic ones (``"xy"``), ``whole`` sets integer ticks."""
    axis.set(xlabel=xlabel, ylabel=ylabel, title=title)
    if "x" in log:
        axis.set_xscale("log", nonpositive="mask")
    if "y" in log:
        axis.set_yscale("log")
    if whole:
        axis.yaxis.set_major_locator(ticker.MaxNLocator(integer=True))


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
    return list(zip(values, plt.get_cmap(of)(np.linspace(0, light, len(values))), strict=True))


def band(
    axis: Any, x: Sequence[float] | np.ndarray, lines: np.ndarray, line: str = "-", **style: Any
) -> None:
    """Draw the mean over the first axis of ``lines`` (the seeds), and the range."""
    axis.plot(x, lines.mean(axis=0), line, **{"linewidth": 1.5, **style})
    if len(lines) > 1:
        low, high = lines.min(axis=0), lines.max(axis=0)
        axis.fill_between(x, low, high, color=style.get("color"), alpha=0.2, linewidth=0)


def head(figure: Any, title: str) -> None:
    """Write a heading, or the user's, above a figure."""
    own = _LOOK.get("title")
    if text := title if own is None else own:
        figure.suptitle(text, wrap=True)


def finish(figure: Any, path: pathlib.Path, title: str, num_columns: int = 3) -> pathlib.Path:
    """Add the heading and one legend for all axes, save the figure and close it.

    Args:
      figure: the figure; axes that are left empty, after the others, take the legend.
      path: the PNG; a PDF is written beside it.
      title: the heading.
      num_columns: the columns of the legend below the axes.
    """
    named = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    head(figure, title)
    spare = [axis for axis in figure.axes if not axis.has_data()]
    for axis in spare:
        axis.set_axis_off()
    if spare:
        texts = [label.replace(" (", "\n(") for label in named]
        # The axes keep their size, whatever the length of the labels.
        spare[0].legend(named.values(), texts, loc="center").set_in_layout(False)
    else:
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=num_columns)
    return save(figure, path)
