"""Stability of the voxels that sparse logistic regression finds."""

from typing import Literal

from experiments.studies.fmri.voxels import claims, figures, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Real, Share

EXPERIMENT = Study(
    title="Faces against houses: the voxels that are found on every half of the scans",
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    figures=figures.draw,
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
