"""The methods over rounds, floats and seconds; the effects of steps and batches."""

import numpy as np
from matplotlib.ticker import EngFormatter

from experiments.report import axes
from experiments.report.plots import style
from experiments.studies.kpca.tables import curves

TITLE = "Principal components on the Stiefel manifold"


def draw(config, rows, summary, directory):
    """Draws, for each split, the methods over rounds, floats and seconds, and the two effects."""
    del summary
    paths = []
    for floor in (row for row in rows if row["part"] == "floor"):
        mine = [row for row in rows if row["split"] == floor["split"]]
        slug = floor["split"].replace(" ", "_")
        paths.append(draw_methods(config, mine, floor, directory / f"methods_{slug}.png"))
        if curves(mine, "steps"):
            paths.append(draw_effects(config, mine, floor, directory / f"effects_{slug}.png"))
    return paths


_OVER = (
    ("round", "round"),
    ("floats_up", "floats sent by a client"),
    ("seconds", "seconds, compilation excluded"),
)
_NORM = "norm of the Riemannian gradient"


def draw_methods(config, rows, floor, path):
    """Gradient norm and suboptimality of the methods over rounds, floats and seconds."""
    figure, grid = axes.panels(3, 2)
    for place, axis in enumerate(grid):
        column, label = _OVER[place % 3]
        measure = "grad_norm" if place < 3 else "suboptimality"
        for (algorithm,), curve in curves(rows, "methods", "algorithm").items():
            name, colour, line = style(algorithm)
            x, y = ([row[key] for row in curve] for key in (column, measure))
            axis.plot(x, y, line, color=colour, label=name, linewidth=1.5)
        if place < 3:
            axis.axhline(floor["grad_norm"], color="#555555", linestyle=":", linewidth=1.2,
                         label="predicted floor of RFedAvg")  # fmt: skip
        if column == "floats_up":
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.describe(axis, label, "" if place % 3 else (_NORM if place < 3 else "F - F*"), log="y")
    title = f"{TITLE}, {floor['split']}: {config.num_steps} local steps, full batches"
    return axes.finish(figure, path, title)


def draw_effects(config, rows, floor, path):
    """The manifold method's gradient norm for several step counts and batch sizes."""
    figure, grid = axes.panels(2)
    by_steps = curves(rows, "steps", "num_steps")
    for (num_steps,), colour in zip(by_steps, axes.shades(len(by_steps)), strict=True):
        curve = by_steps[num_steps,]
        grid[0].plot([row["round"] for row in curve], [row["grad_norm"] for row in curve],
                     color=colour, label=f"{num_steps} local steps", linewidth=1.5)  # fmt: skip
    axes.describe(grid[0], "round", _NORM, title="full batches", log="y")
    by_size = curves(rows, "batches", "batch_size")
    for (size,), colour in zip(by_size, axes.shades(len(by_size)), strict=True):
        by_seed: dict[int, list] = {}
        for row in by_size[size,]:
            by_seed.setdefault(row["seed"], []).append(row)
        rounds = [row["round"] for row in next(iter(by_seed.values()))]
        lines = np.array([[row["grad_norm"] for row in curve] for curve in by_seed.values()])
        axes.band(grid[1], rounds, lines, "--", color=colour, label=f"batch {size}")
    title = f"minibatches, {config.num_steps} local steps"
    axes.describe(grid[1], "round", "", title=title, log="y")
    for axis in grid:
        axis.tick_params(which="minor", labelsize=7.5)
    return axes.finish(figure, path, f"The manifold method, {floor['split']}", 4)
