"""Accuracy over nonzeros."""

from pathlib import Path

from experiments.report import axes
from experiments.report.rows import Row, Summary, column
from experiments.studies.concepts.rows import METHODS
from experiments.study import Config


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the most accurate models at each number of nonzeros."""
    figure, (axis,) = axes.panels(1, height=3.0)
    table = summary["best"]
    for name in config.methods:
        axis.plot(
            column(table, "nonzeros per class, at most"),
            column(table, METHODS[name].text),
            "o-",
            markersize=3,
            linewidth=1.2,
            label=METHODS[name].text,
        )
    axes.describe(axis, "nonzeros per class, at most", "accuracy", log="x")
    axis.set_xticks(config.kept, [str(kept) for kept in config.kept])
    axis.minorticks_off()
    return [axes.finish(figure, directory / "accuracy.png", "The most accurate models", 2)]
