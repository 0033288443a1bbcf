"""Accuracy over nonzeros."""

from pathlib import Path

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column
from experiments.studies.concepts.rows import METHODS
from experiments.study import Config


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the most accurate models at each number of nonzeros."""
    figure, (axis,) = axes.panels(1, height=3.0)
    table = summary["best"]
    for name in config.methods:
        text, (_, colour, line) = METHODS[name].text, style(name, config.methods)
        most, accuracy = column(table, "nonzeros per class, at most"), column(table, text)
        axis.plot(most, accuracy, line, marker="o", markersize=3, color=colour, label=text)
    axes.describe(axis, "nonzeros per class, at most", "accuracy on held-out examples", log="x")
    axis.set_xticks(config.kept, [str(kept) for kept in config.kept])
    axis.minorticks_off()
    return [axes.finish(figure, directory / "accuracy.png", "The most accurate models", 2)]
