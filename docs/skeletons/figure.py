"""Skeleton of a figure: the objective over rounds, one line per algorithm."""

from fcojax.experiments import axes, style


def draw(config, rows, summary, directory):
    """Draw figures from rows into a folder; return their paths."""
    figure, (axis,) = axes.panels(1)
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        mine = [row for row in rows if row["algorithm"] == algorithm]
        label, colour, line = style(algorithm)
        x, y = (
            [row["round"] for row in mine],
            [row["objective"] for row in mine],
        )
        axis.plot(x, y, line, color=colour, label=label)
    axes.describe(axis, "round", "objective", log="y")
    return [axes.finish(figure, directory / "my_figure.png", "My figure")]
