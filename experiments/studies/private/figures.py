"""Accuracy and recovery over epsilon, and density over the noise."""

from pathlib import Path

import numpy as np

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.private.rows import METHODS
from experiments.study import Config


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw both figures; without noise, draw only the figure of the sparsity."""
    title = f"At the best rate of {len(config.client_lr)} at each noise"
    found = []
    if max(config.noises) > 0:
        figure, panels = axes.panels(2)
        for axis, measure, label in zip(
            panels, ("accuracy", "f1"), ("accuracy", "F1 of the support"), strict=True
        ):
            _curves(config, rows, axis, measure, "epsilon")
            axes.describe(axis, r"privacy budget $\epsilon$, tuning included", label, log="x")
        found.append(axes.finish(figure, directory / "private.png", title, 4))
    figure, [axis] = axes.panels(1)
    _curves(config, rows, axis, "density", "noise")
    axes.describe(axis, "noise multiplier", "share of nonzero weights")
    return [*found, axes.finish(figure, directory / "sparsity.png", title, 4)]


def _curves(config: Config, rows: list[Row], axis, measure: str, over: str) -> None:
    for method in config.methods:
        own = sorted(select(rows, method=method, best=True), key=lambda row: row["noise"])
        if over == "epsilon":
            own = [row for row in own if row["noise"] > 0]
        lines = np.array([column(select(own, seed=seed), measure) for seed in config.seeds])
        x = column(select(own, seed=config.seeds[0]), over)
        name, colour, line = METHODS[method].text, *style(method)[1:]
        axes.band(axis, x, lines, line, color=colour, label=name)
