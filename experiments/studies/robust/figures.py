"""Breakdown curves."""

from pathlib import Path

import numpy as np

from experiments.report import axes
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.robust.rows import METHODS
from experiments.study import Config

_LINES = ("-", "--", "-.", ":")


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the distance over the attackers' weight, with a panel for each method and attack."""
    figure, panels = axes.panels(len(config.attacks), len(config.methods))
    for line, method in enumerate(config.methods):
        for place, attack in enumerate(config.attacks):
            axis = panels[line * len(config.attacks) + place]
            for at, rule in enumerate(config.rules):
                own = select(rows, method=method, attack=attack, rule=rule)
                lines = [column(select(own, seed=seed), "distance") for seed in config.seeds]
                axes.band(
                    axis,
                    config.shares,
                    np.maximum(lines, 1e-4),
                    _LINES[at % len(_LINES)],
                    color=f"C{at}",
                    label=rule.replace("_", " "),
                )
            title = f"{METHODS[method].text}, {attack.replace('_', ' ')}"
            above = line < len(config.methods) - 1
            axes.describe(
                axis,
                "" if above else "attackers' share of the weight",
                "relative distance to the honest end" if place == 0 else "",
                title=title,
                log="y",
            )
    title = "Where attackers move the end point"
    return [axes.finish(figure, directory / "robust.png", title, 4)]
