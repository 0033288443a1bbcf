"""Our expectations of the voxels that are found on every half of the scans."""

from experiments.report.claims import Claim
from experiments.report.rows import Row, Summary
from experiments.studies.fmri.voxels.rows import HALVES, found
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return that both kinds of halves agree and, where it is known, that the voxels respond."""
    scans, sessions = (found(config, rows, halves) for halves in HALVES)
    both = (scans & sessions).sum() / max((scans | sessions).sum(), 1)
    result = [
        _expected("halves of scans and of sessions find the same voxels", both, 0.5, "overlap"),
        _expected("some voxels are found in nearly all halves", scans.sum(), 1, "voxels"),
    ]
    for entry in summary["stability"]:
        if "precision" in entry:
            halves = entry["halves of the"]
            for text, measure in (
                ("voxels found in nearly all halves respond", "precision"),
                ("all voxels that respond are found", "recall"),
            ):
                claim = _expected(text, entry[measure], 0.95, measure)
                result.append(claim._replace(part=f"halves of the {halves}"))
    return result


def _expected(text: str, measured: float, needed: float, measure: str) -> Claim:
    return Claim(text, float(measured), needed, measure=measure, quick=False)
