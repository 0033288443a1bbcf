"""Axes in one style, with one legend below them."""

import logging
import pathlib
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import ticker

# It tells of every glyph that it leaves out of a PDF.
logging.getLogger("fontTools").setLevel(logging.WARNING)

# Type 42 fonts can be searched and edited; the mathematics is typeset in a font like TeX's.
_JOURNAL: dict[Any, Any] = {"pdf.fonttype": 42, "mathtext.fontset": "cm", "svg.fonttype": "none"}

_TITLE_WIDTH = 84  # characters that fit above a figure


def panels(num_columns: int, num_lines: int = 1, height: float = 2.6) -> tuple[Any, list[Any]]:
    """A figure as wide as a text column with ``height`` inches per line, and its axes."""
    figure, grid = plt.subplots(
        num_lines, num_columns, figsize=(7.0, height * num_lines + 0.6), squeeze=False
    )
    return figure, list(grid.flat)


def save(figure, path: pathlib.Path) -> pathlib.Path:
    """Saves a figure as PNG and, beside it, as PDF, and closes it; returns the PNG."""
    with matplotlib.rc_context(_JOURNAL):
        figure.savefig(path, dpi=150)
        figure.savefig(path.with_suffix(".pdf"))
    plt.close(figure)
    return path


def describe(
    axis, horizontal: str, vertical: str, *, title: str = "", log: str = "", whole: bool = False
) -> None:
    """Labels axes; ``log`` names the logarithmic ones, as in ``"xy"``; ``whole`` counts upwards."""
    axis.set_xlabel(horizontal, fontsize=8)
    axis.set_ylabel(vertical, fontsize=8)
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


def _enough_ticks(axis) -> None:
    """Ticks at 1, 2 and 5 where an axis spans less than two decades, in plain numbers."""
    low, high = axis.get_ylim()
    if low > 0 and high / low < 100:
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(ticker.NullFormatter())


def shades(num: int) -> list[Any]:
    """Colours for the values of a parameter, dark to light."""
    return [plt.get_cmap("viridis")(place) for place in np.linspace(0, 0.88, num)]


def band(
    axis, x: Sequence[float] | np.ndarray, lines: np.ndarray, line: str = "-", **style: Any
) -> None:
    """Draws the mean over the first axis of ``lines`` (seeds), and their range."""
    axis.plot(x, lines.mean(axis=0), line, **{"linewidth": 1.5, **style})
    if len(lines) > 1:
        low, high = lines.min(axis=0), lines.max(axis=0)
        axis.fill_between(x, low, high, color=style.get("color"), alpha=0.2, linewidth=0)


def finish(figure, path: pathlib.Path, title: str, num_columns: int = 3) -> pathlib.Path:
    """Adds one legend for all axes, saves the figure and closes it."""
    named = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    figure.suptitle(textwrap.fill(title, _TITLE_WIDTH), fontsize=10)
    lines = -(-len(named) // num_columns)
    figure.tight_layout(rect=(0, (0.19 * lines + 0.05) / figure.get_figheight(), 1, 1))
    figure.legend(
        list(named.values()), list(named), loc="lower center", ncols=num_columns, frameon=False,
        fontsize=7.5,
    )  # fmt: skip
    return save(figure, path)
