"""Figures of the weights on the grid of voxels."""

from pathlib import Path

import numpy as np

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary
from experiments.studies.fmri.problem import voxel_grid
from experiments.study import Config
from fcojax.problems import on_grid


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the weights on the grid of voxels."""
    voxels, grid = voxel_grid(config)
    images = {}
    for label in summary["algorithms"]:
        saved = directory.parent / "models" / f"{label}.npz"
        if saved.exists():
            with np.load(saved) as arrays:
                kernel = on_grid(arrays["kernel"], voxels, grid)
            largest = max(float(np.nanmax(np.abs(kernel))), 1e-12)
            images[style(label)[0]] = kernel / largest
    if not images:
        return []
    title = "Weights relative to the largest of each model"
    return [draw_maps(images, directory / "weights.png", title, "RdBu_r", -1.0)]


def draw_maps(
    images: dict[str, np.ndarray], path: Path, what: str, colours: str, least: float
) -> Path:
    """Draw the slice of the images with the largest total; colours go from ``least`` to one."""
    mass = sum(np.nansum(np.abs(image), axis=(0, 1)) for image in images.values())
    level = int(np.argmax(mass))
    columns = min(4, len(images))
    rows, across = next(iter(images.values())).shape[:2]
    height = min(1.9, 7.0 / columns * rows / across + 0.25)
    figure, grid = axes.panels(columns, -(-len(images) // columns), height)
    for axis in grid:
        axis.set_axis_off()
    shown = None
    for axis, (title, image) in zip(grid, images.items(), strict=False):
        axis.imshow(np.isnan(image[:, :, level]), cmap="Greys", vmin=-0.15, vmax=6)
        shown = axis.imshow(image[:, :, level], cmap=colours, vmin=least, vmax=1)
        axis.set_title(title)
    figure.colorbar(shown, ax=grid, location="bottom", shrink=0.5, aspect=40)
    axes.head(figure, f"{what}, slice {level} of the voxel grid")
    return axes.save(figure, path)
