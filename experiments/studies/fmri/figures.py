"""Figures of accuracy over the rates, and of the weights on the grid of voxels."""

from pathlib import Path

import numpy as np

from experiments.report import axes, heatmaps
from experiments.report.names import words
from experiments.report.plots import style
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion
from experiments.studies.fmri.problem import voxel_grid
from experiments.study import Config
from fcojax.problems import on_grid


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw accuracy over the rates, and the weights on the grid of voxels."""
    entries = summary["algorithms"]
    drawn = []
    if rows:
        drawn.append(
            heatmaps.maps(
                directory / "accuracy.png",
                {label: [row for row in rows if row["algorithm"] == label] for label in entries},
                {label: entry["best"] for label, entry in entries.items()},
                Criterion("accuracy", "max", config.criterion_rounds),
                chosen_by=words(config.criterion),
            )
        )
    voxels, grid = voxel_grid(config)
    images = {}
    for label in entries:
        saved = directory.parent / "models" / f"{label}.npz"
        if saved.exists():
            with np.load(saved) as arrays:
                images[label] = on_grid(arrays["kernel"], voxels, grid)
    if images:
        drawn.append(draw_maps(images, directory / "weights.png"))
    return [figure for figure in drawn if figure]


def draw_maps(
    images: dict[str, np.ndarray], path: Path, what: str = "weight over the largest one"
) -> Path:
    """Draw the slice with the largest total of all images, each relative to its largest entry."""
    mass = sum(np.nansum(np.abs(image), axis=(0, 1)) / _largest(image) for image in images.values())
    level = int(np.argmax(mass))
    columns = min(4, len(images))
    figure, grid = axes.panels(columns, -(-len(images) // columns), height=1.9)
    figure.set_layout_engine("constrained")
    for axis in grid:
        axis.set_axis_off()
    shown = None
    for axis, (label, image) in zip(grid, images.items(), strict=False):
        axis.imshow(np.isnan(image[:, :, level]), cmap="Greys", vmin=-0.15, vmax=6)
        shown = axis.imshow(image[:, :, level] / _largest(image), cmap="RdBu_r", vmin=-1, vmax=1)
        axis.set_title(style(label)[0], fontsize=8.5)
    bar = figure.colorbar(shown, ax=grid, location="bottom", shrink=0.5, aspect=40)
    bar.set_label(what, fontsize=8)
    bar.ax.tick_params(labelsize=7.5)
    figure.suptitle(f"Slice {level} of the voxel grid", fontsize=10)
    return axes.save(figure, path)


def _largest(image: np.ndarray) -> float:
    return max(float(np.nanmax(np.abs(image))), 1e-12)
