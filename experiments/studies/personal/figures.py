"""Scores of the clients, from the worst to the best, and by the number of their rows."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.report import axes
from experiments.report.rows import Row, Summary, select
from experiments.studies.personal.rows import measure_of, score
from experiments.study import Config

_SHOWN = ("global", "local", "ditto", "partial")


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the clients' scores, sorted, and their gains by size for tasks of unequal clients."""
    shown = [method for method in _SHOWN if method in config.methods]
    draws = []
    for name in config.tasks:
        draws.append((_sorted, name))
        own = select(rows, task=name)
        if "local" in shown and any(len({*row["sizes"]}) > 1 for row in own):
            draws.append((_by_size, name))
    figure, panels = axes.panels(len(draws), height=3.0)
    for axis, (drawn, name) in zip(panels, draws, strict=True):
        drawn(axis, config, select(rows, task=name), name, shown)
    return [axes.finish(figure, directory / "clients.png", "What each client gets", 4)]


def _sorted(axis: Any, config: Config, rows: list[Row], name: str, shown: list[str]) -> None:
    """Draw the clients' scores from the worst to the best, in the first seed."""
    for method in shown:
        [row] = select(rows, method=method, seed=config.seeds[0])
        at = np.sort(score(row))
        share = (np.arange(at.size) + 0.5) / at.size
        axis.plot(share, at, "o-", markersize=3, linewidth=1.2, label=method)
    axes.describe(axis, f"{name}: share of clients", measure_of(rows[0]))


def _by_size(axis: Any, config: Config, rows: list[Row], name: str, shown: list[str]) -> None:
    """Draw by how much each client gains over the model that it learns alone, in all seeds."""
    for at, method in enumerate(shown):
        if method == "local":
            continue
        for seed in config.seeds:
            [row] = select(rows, method=method, seed=seed)
            [alone] = select(rows, method="local", seed=seed)
            gains = score(row) - score(alone)
            axis.plot(row["sizes"], gains, "o", color=f"C{at}", markersize=3, alpha=0.6)
    axis.axhline(0, color="#555555", linewidth=0.8)
    label = f"gain in {measure_of(rows[0])} over local"
    axes.describe(axis, f"{name}: training rows of a client", label, log="x")
