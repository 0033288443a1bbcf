"""The frequency of each voxel, on the grid."""

from pathlib import Path

from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fmri.figures import draw_maps
from experiments.studies.fmri.problem import voxel_grid
from experiments.studies.fmri.voxels.rows import HALVES
from experiments.study import Config
from fcojax.problems import on_grid


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the slice in which voxels are found most often, for both kinds of halves."""
    voxels, grid = voxel_grid(config)
    images = {
        f"halves of the {halves}": on_grid(
            column(select(rows, part="voxel", halves=halves), "frequency"), voxels, grid
        )
        for halves in HALVES
    }
    title = "Share of the halves that find a voxel"
    return [draw_maps(images, directory / "frequencies.png", title, "cividis", 0.0)]
