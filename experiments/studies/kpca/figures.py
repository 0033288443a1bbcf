"""Figures of the methods over rounds, floats and seconds, and over steps and batches."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.kpca.rows import Curves, curves, late_mean_square
from experiments.study import Config

TITLE = "Principal components on the Stiefel manifold"


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw, for each split, the methods over rounds, floats and seconds, and the effects."""
    paths = []
    for floor in (row for row in rows if row["part"] == "floor"):
        own = select(rows, split=floor["split"])
        slug = floor["split"].replace(" ", "_")
        paths.append(draw_methods(config, own, floor, directory / f"methods_{slug}.png"))
        if curves(own, "steps"):
            paths.append(draw_effects(config, own, floor, directory / f"effects_{slug}.png"))
    return paths


_OVER = (
    ("round", "communication round"),
    ("floats_up", "floats sent by a client"),
    ("seconds", "seconds, compilation excluded"),
)
_NORM = "norm of the Riemannian gradient"


def draw_methods(config: Config, rows: list[Row], floor: Row, path: Path) -> Path:
    """Draw gradient norm and suboptimality over rounds, floats and seconds."""
    figure, grid = axes.panels(3, 2)
    for place, axis in enumerate(grid):
        across, label = _OVER[place % 3]
        measure = "grad_norm" if place < 3 else "suboptimality"
        for (algorithm,), curve in curves(rows, "methods", "algorithm").items():
            name, colour, line = style(algorithm)
            axes.curve(axis, curve, across, measure, line, color=colour, label=name, linewidth=1.5)
        if place < 3:
            axis.axhline(
                floor["grad_norm"],
                color="#555555",
                linestyle=":",
                linewidth=1.2,
                label="predicted floor of RFedAvg",
            )
        if across == "floats_up":
            axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.describe(
            axis, label, "" if place % 3 else (_NORM if place < 3 else "$F - F^*$"), log="y"
        )
    title = f"Principal components, {floor['split']}: {config.num_steps} local steps, full batches"
    return axes.finish(figure, path, title)


def draw_effects(config: Config, rows: list[Row], floor: Row, path: Path) -> Path:
    """Draw the effects of local steps, batches, the server's step and the number of clients.

    Each parameter has its own colours, and each panel its own legend.
    """
    crowds = curves(rows, "crowds", "num_clients")
    figure, grid = axes.panels(2, 2) if crowds else axes.panels(3, height=3.0)
    steps, batches = (
        curves(rows, *own) for own in (("steps", "num_steps"), ("batches", "batch_size"))
    )
    _draw_curves(grid[0], steps, "{} local steps", "Blues_r")
    axes.describe(grid[0], "communication round", _NORM, title="full batches", log="y")
    for ((size,), own), colour in axes.shaded(batches.items(), "Oranges_r"):
        axes.seeds(grid[1], own, "round", "grad_norm", color=colour, label=f"batch {size}")
    title = f"minibatches, {config.num_steps} local steps"
    axes.describe(grid[1], "communication round", "", title=title, log="y")
    servers = curves(rows, "servers", "server_lr")
    _draw_curves(grid[2], servers, r"$\eta_g = {:.3g}$", "Greens_r")
    title = rf"full batches, $\eta = {config.server_relative_lr:g} / L$"
    axes.describe(grid[2], "communication round", _NORM if crowds else "", title=title, log="y")
    if crowds:
        _draw_crowds(grid[3], config, crowds)
    for axis in grid:
        axis.legend()
    axes.head(figure, f"The manifold method, {floor['split']}")
    return axes.save(figure, path)


def _draw_curves(axis: Axes, by_value: Curves, label: str, colours: str) -> None:
    for ((value,), own), colour in axes.shaded(by_value.items(), colours):
        text = label.format(value)
        axes.curve(axis, own, "round", "grad_norm", color=colour, label=text, linewidth=1.5)


def _draw_crowds(axis: Axes, config: Config, crowds: Curves) -> None:
    sizes = np.array([size for (size,) in crowds])
    floors = np.array([late_mean_square(curve) for curve in crowds.values()])
    axis.plot(sizes, floors, "o", color="#000000", label="late mean of its square")
    axis.plot(sizes, floors[0] * sizes[0] / sizes, ":", color="#555555", label="as $1 / n$")
    title = f"minibatches of {config.crowd_batch}"
    axes.describe(axis, "clients $n$", "squared gradient norm", title=title, log="xy")
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
