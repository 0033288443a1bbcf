"""Curves over the bytes sent."""

import itertools
from pathlib import Path

import numpy as np

from experiments.report import axes
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.studies.compress.problem import Kind
from experiments.studies.compress.rows import ALONE, METHODS, names
from experiments.study import Config

_COLOURS = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#882255",
    "#999933",
    "#44AA99",
)


def draw(
    kind: Kind, config: Config, rows: list[Row], summary: Summary, directory: Path
) -> list[Path]:
    """Draw both measures over kilobytes, a column of panels for each method."""
    number, kinds = len(config.methods), [name.removesuffix(ALONE) for name in names(config)]
    colours = dict(zip(dict.fromkeys(kinds), itertools.cycle(_COLOURS), strict=False))
    figure, panels = axes.panels(number, 2, height=2.3)
    for place, method in enumerate(config.methods):
        for line, (measure, label) in enumerate(kind.measures.items()):
            axis = panels[line * number + place]
            for name in names(config):
                curve = select(rows, part="curve", method=method, codec=name)
                values = np.array([column(one, measure) for one in by_seed(curve).values()])
                values = np.maximum(values, 1e-12) if measure == "distance" else values
                colour = colours[name.removesuffix(ALONE)]
                sent = column(select(curve, seed=config.seeds[0]), "bytes_up") / 1e3
                axes.band(
                    axis,
                    sent,
                    values,
                    "--" if ALONE in name else "-",
                    color=colour,
                    linewidth=1.2,
                    label=name,
                )
            log = "x" if measure == "f1" else "xy"
            title = METHODS[method].text if line == 0 else ""
            axes.describe(
                axis, "kilobytes sent up", label if place == 0 else "", title=title, log=log
            )
            if measure == "distance":
                axis.set_ylim(1e-9, 10)
    return [axes.finish(figure, directory / "curves.png", "At each codec's best step", 3)]
