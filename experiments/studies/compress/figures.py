"""Curves over what was sent."""

import itertools
from pathlib import Path

import numpy as np

from experiments.report import axes
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.compress.rows import ALONE, METHODS, names
from experiments.study import Config

_COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#882255",
            "#999933", "#44AA99")  # fmt: skip
_LABELS = {"distance": "relative distance", "f1": "F1 of the support"}


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the distance and the F1 over kilobytes, a column of panels for each method."""
    number, kinds = len(config.methods), [name.removesuffix(ALONE) for name in names(config)]
    colours = dict(zip(dict.fromkeys(kinds), itertools.cycle(_COLOURS), strict=False))
    figure, panels = axes.panels(number, 2, height=2.3)
    for place, method in enumerate(config.methods):
        for line, measure in enumerate(_LABELS):
            axis = panels[line * number + place]
            for name in names(config):
                curve = select(rows, part="curve", method=method, uplink=name)
                values = column(curve, measure)
                values = np.maximum(values, 1e-12) if measure == "distance" else values
                colour = colours[name.removesuffix(ALONE)]
                axis.plot(
                    column(curve, "bytes_up") / 1e3, values, "--" if ALONE in name else "-",
                    color=colour, linewidth=1.2, label=name,
                )  # fmt: skip
            log = "xy" if measure == "distance" else "x"
            title = METHODS[method].text if line == 0 else ""
            axes.describe(
                axis, "kilobytes sent up", _LABELS[measure] if place == 0 else "", title=title,
                log=log,
            )  # fmt: skip
            if measure == "distance":
                axis.set_ylim(1e-9, 10)
    return [axes.finish(figure, directory / "curves.png", "At each uplink's best step", 3)]
