"""Our expectations of the voxels that are found on every half of the scans."""

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary
from experiments.studies.fmri.voxels.rows import HALVES, found
from experiments.study import Config

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
