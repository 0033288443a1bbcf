"""Scores of our fits with their intervals, beside the published ones."""

from pathlib import Path

from experiments.report import axes
from experiments.report.rows import Row, Summary
from experiments.study import Config


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw one panel for each benchmark."""
    found = []
    for name in config.datasets:
        table = summary[name][::-1]
        figure, [axis] = axes.panels(1)
        figure.set_size_inches(8, 0.24 * len(table) + 1.2)
        for height, entry in enumerate(table):
            ours = "from" in entry
            color = "C0" if ours else "0.45"
            if ours:
                axis.plot([entry["from"], entry["to"]], [height, height], color=color, lw=1.2)
            axis.plot(entry["silos"], height, "o" if ours else "D", color=color, ms=4)
        axis.set_yticks(range(len(table)), [entry["fit"] for entry in table])
        what = "C-index" if name == "fed_tcga_brca" else "accuracy"
        axes.describe(axis, f"mean {what} over the silos' test rows", "")
        found.append(axes.finish(figure, directory / f"{name}.png", name, 4))
    return found
