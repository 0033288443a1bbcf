"""Scores of the clients, from the worst to the best."""

from pathlib import Path

import numpy as np

from experiments.report import axes
from experiments.report.rows import Row, Summary, select
from experiments.studies.personal.rows import score
from experiments.study import Config

_SHOWN = ("global", "local", "ditto", "shared support")


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw one panel for each task: the clients' scores, sorted, for some of the methods."""
    figure, panels = axes.panels(len(config.tasks), height=3.0)
    for axis, name in zip(panels, config.tasks, strict=True):
        for method in filter(config.methods.__contains__, _SHOWN):
            [row] = select(rows, task=name, method=method, seed=config.seeds[0])
            at = np.sort(score(row))
            share = (np.arange(at.size) + 0.5) / at.size
            axis.plot(share, at, "o-", markersize=3, linewidth=1.2, label=method)
        label = "accuracy" if "accuracy" in row else "minus the test loss"
        axes.describe(axis, f"{name}: share of clients", label)
    return [axes.finish(figure, directory / "clients.png", "Clients from worst to best", 4)]
