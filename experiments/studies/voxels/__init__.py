"""Stability of the voxels that sparse logistic regression finds, with our expectations of it."""

from pathlib import Path
from typing import Literal

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fmri import draw_maps
from experiments.studies.fmri.problem import voxel_grid
from experiments.studies.voxels.rows import HALVES, found, study, summarise
from experiments.study import Config, Study
from fcojax.problems import on_grid
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Real, Share

STATEMENTS = """
Expected by us
overlap | halves of scans and of sessions find the same voxels | overlap | >= 0.5
voxels | some voxels are found in nearly all halves | voxels | >= 1
precision | voxels found in nearly all halves respond | precision | >= 0.95
recall | all voxels that respond are found | recall | >= 0.95
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return that both kinds of halves agree and, where it is known, that the voxels respond."""
    scans, sessions = (found(config, rows, halves) for halves in HALVES)
    both = (scans & sessions).sum() / max((scans | sessions).sum(), 1)
    numbers = {"overlap": both, "voxels": scans.sum(), "precision": {}, "recall": {}}
    for entry in summary["stability"]:
        for measure in {"precision", "recall"} & entry.keys():
            numbers[measure][f"halves of the {entry['halves of the']}"] = entry[measure]
    return judged(STATEMENTS, numbers)


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the slice in which voxels are found most often, for both kinds of halves."""
    voxels, grid = voxel_grid(config)
    images = {}
    for halves in HALVES:
        frequency = column(select(rows, part="voxel", halves=halves), "frequency")
        images[f"halves of the {halves}"] = on_grid(frequency, voxels, grid)
    title = "Share of the halves that find a voxel"
    return [draw_maps(images, directory / "frequencies.png", title, "cividis", 0.0)]


EXPERIMENT = Study(
    title="Faces against houses: the voxels that are found on every half of the scans",
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=draw,
    keys={
        Count: "grid[3] sessions[2+] num_voxels num_blobs num_strengths num_draws",
        CountOrZero: "held_out data_seed",
        NonNegative: "cuts smoothing effect_spread",
        Real: "start_scale effect",
        Positive: "tolerance",
        Share: "least often share_true",
        Literal["slice", "wholebrain_25mm"]: "view",
        Literal["l1"]: "penalty",
        str: "data_dir",
    },
    printed=("stability",),
)
