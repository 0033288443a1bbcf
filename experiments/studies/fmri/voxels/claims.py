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
        _expected("halves of scans and of sessions find the same voxels (overlap)", both, 0.5),
        _expected("some voxels are found in nearly all halves of the scans", scans.sum(), 1),
    ]
    for entry in summary["stability"]:
        if "precision" in entry:
            text = f"voxels found in nearly all halves of the {entry['halves of the']} respond"
            result.append(_expected(f"{text} (precision)", entry["precision"], 0.95))
            result.append(
                _expected("and all that respond are found (recall)", entry["recall"], 0.95)
            )
    return result


def _expected(text: str, measured: float, needed: float) -> Claim:
    return Claim(text, float(measured), needed, source=False, quick=False)
