"""Seconds by server and law of speed, and distances by participation."""

from pathlib import Path

import numpy as np

from experiments.report import axes
from experiments.report.rows import Row, Summary, select
from experiments.study import Config


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the seconds to a suboptimality of 1e-3, and the distances to the minimiser."""
    figure, panels = axes.panels(len(config.methods))
    for axis, method in zip(panels, config.methods, strict=True):
        for at, server in enumerate(config.servers):
            for place, speed in enumerate(config.speeds):
                own = select(rows, part="time", method=method, server=server, speed=speed)
                found = [row["gap"] for row in own]
                label = server if place == 0 else None
                # Runs that never get there are crosses at the lower edge.
                high = [np.nan if value is None else value for value in found]
                across = np.full(len(found), place + 0.2 * (at - 1))
                axis.plot(across, high, "o", color=f"C{at}", label=label)
                if None in found:
                    axis.plot(across[:1], [1.0], "x", color=f"C{at}")
        axis.set_xticks(range(len(config.speeds)), [s.replace("_", " ") for s in config.speeds])
        label = "simulated seconds to 1e-3" if method == config.methods[0] else ""
        axes.describe(axis, "", label, title=method.replace("_", " "), log="y")
    title = "How long servers wait"
    paths = [axes.finish(figure, directory / "time.png", title, len(config.servers))]
    figure, (axis,) = axes.panels(1)
    for at, correct in enumerate(("none", "known", "estimated")):
        for place, entry in enumerate(summary["biases"]):
            label = correct if place == 0 else None
            axis.plot([place + 0.2 * (at - 1)], [entry[correct]], "o", color=f"C{at}", label=label)
    axis.set_xticks(range(len(config.participations)), list(config.participations))
    axes.describe(axis, "", "relative distance to the minimiser", title="", log="y")
    return [*paths, axes.finish(figure, directory / "bias.png", "Weights p / q", 3)]
