"""How a run ended, judged by the curve of its objective."""

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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


class Verdict(NamedTuple):
    """How a run ended.

    Attributes:
      status: diverged, converged, stalled, improving, moving or rising.
      round: the round at which it diverged, else the last round.
      sentence: the status and the round in words, with warnings.
      warned: whether the sentence has a warning.
    """

    status: Status
    round: int
    sentence: str
    warned: bool = False


def verdict(
    rounds: Sequence[int],
    objective: Sequence[float],
    optimum: float | None = None,
    dropped: Sequence[int] | None = None,
    participants: Sequence[int] | None = None,
    flags: Mapping[str, Sequence[float]] | None = None,
    since: int = 0,
) -> Verdict:
    """Judge the curve of the objective.

    Args:
      rounds: the rounds of the evaluations; the first is the start.
      objective: F + psi at those rounds.
      optimum: the minimum, if known. Without it a run that stopped moving counts as converged.
      dropped: the number of uploads since the last evaluation that were not finite.
      participants: the number of uploads since the last evaluation.
      flags: metrics that are zero in a sound run, at each evaluation, by their name in
        ``WARNINGS``.
      since: evaluations before this one are known to be sound.

    Example:
      >>> verdict([0, 10, 20], [1.0, 5.0, float("inf")]).sentence
      'diverged by round 20: the objective is inf; take a smaller rate'
    """
    start = objective[0]
    for index in range(since, len(rounds)):
        value, reason = objective[index], ""
        if not math.isfinite(value):
            reason = f"the objective is {value}"
        elif index and dropped and participants and dropped[index] >= participants[index] > 0:
            reason = "no upload was finite any more"
        elif value - start > _BLOW_UP * max(abs(start), 1e-12):
            reason = f"the objective is {value:.3g}, it began at {start:.3g}"
        if reason:
            status, at, detail = Status.DIVERGED, rounds[index], reason
            break
    else:
        at = rounds[-1]
        status, detail = _end(rounds, objective, optimum)
    sentence, warned = status.sentence(at, detail), False
    for name, values in (flags or {}).items():
        first = next((now for now in range(since, len(rounds)) if values[now] > 0), None)
        if first is not None:
            sentence += f"; by round {rounds[first]} {WARNINGS[name]}"
            warned = True
    return Verdict(status, at, sentence, warned)


def _end(
    rounds: Sequence[int], objective: Sequence[float], optimum: float | None
) -> tuple[Status, str]:
    """Return the status of a finite curve by its last quarter, with the number that tells it."""
    last, end = rounds[-1], objective[-1]
    spacing = last - rounds[-2] if len(rounds) > 1 else 1
    looks = (last - rounds[0]) // spacing + 1  # as if all evaluations were this far apart
    tail = objective[bisect.bisect_right(rounds, last - max(2, looks // 4) * spacing) :]
    moved, size = max(tail) - min(tail), max(abs(end), 1e-12)
    if looks < 4 or moved > _STANDSTILL * size:
        change, least = end - (tail if len(tail) > 1 else objective)[0], min(objective)
        if change > moved / 2 and end - least > _ARRIVED * size:
            before = rounds[objective.index(least)]
            return (
                Status.RISING,
                f"the objective is {end:.4g}, it was {least:.4g} at round {before}",
            )
        return (Status.IMPROVING if change < -moved / 2 else Status.MOVING), ""
    if optimum is None or end - optimum <= _ARRIVED * max(abs(optimum), 1e-12):
        return Status.CONVERGED, ""
    return Status.STALLED, f"{end - optimum:.3g}"
