"""How a run ended, judged by the curve of its objective."""

import bisect
import math
from collections.abc import Sequence

from experiments.report.rows import Row
from fcojax import Status

# A run has diverged once its objective exceeds the start by this multiple of its absolute value.
_BLOW_UP = 10.0
# A run has stopped moving if its last quarter changed the objective by less than this share.
_STANDSTILL = 1e-3
# Such a run has converged if its relative suboptimality is at most this.
_ARRIVED = 1e-2

# Metrics that are zero in a sound run, and what another value means.
WARNINGS = {
    "beyond_reach": "iterates left the tube in which the projection on the manifold is unique; "
    "take smaller steps"
}

# What a table shows of a verdict, in words.
LEGEND = {
    "diverged": f"not finite, or {_BLOW_UP:g} times its start",
    "converged": "still over the last quarter of the rounds, and near the optimum if it is known",
    "stalled": f"still, and more than {_ARRIVED:.0%} above the optimum",
    "improving": "falling to the end",
    "moving": "going up and down to the end",
    "rising": "above its own least at the end",
}


def verdict(curve: Sequence[Row], optimum: float | None = None, since: int = 0) -> str:
    """Return the status of a run in a word, or a sentence if it diverged or has warnings.

    Args:
      curve: the rows of one run, of which the first is the start: ``round`` and ``objective``, F +
        psi; since the row before, ``participants`` uploads, of which ``dropped`` were not finite;
        and the names in ``WARNINGS``. What a row lacks counts as zero.
      optimum: the minimum, if known. Without it a run that stopped moving counts as converged.
      since: rows before this one are known to be sound.

    Example:
      >>> rows = [{"round": 0, "objective": 1.0}, {"round": 10, "objective": float("inf")}]
      >>> verdict(rows)
      'diverged by round 10: the objective is inf; take a smaller rate'
    """
    start = _objective(curve[0])
    for index in range(since, len(curve)):
        row, value, reason = curve[index], _objective(curve[index]), ""
        if not math.isfinite(value):
            reason = f"the objective is {value}"
        elif index and (row.get("dropped") or 0) >= (row.get("participants") or 0) > 0:
            reason = "no upload was finite any more"
        elif value - start > _BLOW_UP * max(abs(start), 1e-12):
            reason = f"the objective is {value:.3g}, it began at {start:.3g}"
        if reason:
            status, at, detail = Status.DIVERGED, row["round"], reason
            break
    else:
        at = curve[-1]["round"]
        status, detail = _end(curve, optimum)
    warnings = [
        f"; by round {first['round']} {meaning}"
        for name, meaning in WARNINGS.items()
        if (first := next((row for row in curve[since:] if (row.get(name) or 0) > 0), None))
    ]
    if status is Status.DIVERGED or warnings:
        return status.sentence(at, detail) + "".join(warnings)
    return status.name.lower()


def _objective(row: Row) -> float:
    return math.nan if row["objective"] is None else row["objective"]


def _end(curve: Sequence[Row], optimum: float | None) -> tuple[Status, str]:
    """Return the status of a finite curve by its last quarter, with the number that tells it."""
    last, end = curve[-1]["round"], curve[-1]["objective"]
    spacing = last - curve[-2]["round"] if len(curve) > 1 else 1
    looks = (last - curve[0]["round"]) // spacing + 1  # as if all rows were this far apart
    late = last - max(2, looks // 4) * spacing
    begins = bisect.bisect_right(curve, late, key=lambda row: row["round"])
    tail = [row["objective"] for row in curve[begins:]]
    moved, size = max(tail) - min(tail), max(abs(end), 1e-12)
    if looks < 4 or moved > _STANDSTILL * size:
        change = end - (tail[0] if len(tail) > 1 else curve[0]["objective"])
        if change <= moved / 2:
            return (Status.IMPROVING if change < -moved / 2 else Status.MOVING), ""
        best = min(curve, key=lambda row: row["objective"])
        least, before = best["objective"], best["round"]
        if end - least <= _ARRIVED * size:
            return Status.MOVING, ""
        return Status.RISING, f"the objective is {end:.4g}, it was {least:.4g} at round {before}"
    if optimum is None or end - optimum <= _ARRIVED * max(abs(optimum), 1e-12):
        return Status.CONVERGED, ""
    return Status.STALLED, f"{end - optimum:.3g}"
