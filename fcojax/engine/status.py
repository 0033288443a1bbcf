"""A run's curve to a verdict, on the host."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# A curve that has risen this far above its start, relative to the start's size, has left for good.
_BLOW_UP = 10.0
# Relative change over the last quarter of a run below which it counts as standing still.
_STANDSTILL = 1e-3
# Suboptimality, relative to the optimum, below which standing still is arriving.
_ARRIVED = 1e-2

# Metrics that should be zero, and what it means if one is not.
WARNINGS = {
    "beyond_reach": "iterates left the tube in which the projection on the manifold is unique; "
    "take smaller steps",
}


class Verdict(NamedTuple):
    """How a run went.

    Attributes:
      status: ``diverged``, ``converged``, ``stalled`` or ``improving``.
      round: the first bad round of a diverged run, else the last round.
      sentence: the same for a reader, and what else was wrong.
      warned: whether something else was wrong.
    """

    status: str
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
) -> Verdict:
    """Judges a curve of the objective at the given rounds, the start included.

    Args:
      rounds: the rounds at which one looked; the first is the start.
      objective: F + psi at those rounds.
      optimum: its least value, where known. Without it, standing still counts as converged.
      dropped: uploads that were not finite since the last look.
      participants: uploads sent since the last look.
      flags: by name in ``WARNINGS``, metrics since the last look that are zero if all is well.

    Example:
      >>> verdict([0, 10, 20], [1.0, 5.0, float("inf")]).sentence
      'diverged at round 20: the objective is inf'
    """
    judged = _judge(rounds, objective, optimum, dropped, participants)
    for name, values in (flags or {}).items():
        first = next((now for now, value in zip(rounds, values, strict=True) if value > 0), None)
        if first is not None:
            sentence = f"{judged.sentence}; by round {first} {WARNINGS[name]}"
            judged = judged._replace(sentence=sentence, warned=True)
    return judged


def _judge(rounds, objective, optimum, dropped, participants) -> Verdict:
    start = objective[0]
    for index, (now, value) in enumerate(zip(rounds, objective, strict=True)):
        if not math.isfinite(value):
            return Verdict("diverged", now, f"diverged at round {now}: the objective is {value}")
        if index and dropped and participants and dropped[index] and participants[index]:
            lost = dropped[index] / participants[index]
            if lost >= 1:
                return Verdict(
                    "diverged", now, f"diverged at round {now}: no upload was finite any more"
                )
        if value - start > _BLOW_UP * max(abs(start), 1e-12):
            return Verdict(
                "diverged",
                now,
                f"diverged at round {now}: the objective is {value:.3g}, it began at {start:.3g}",
            )
    last = rounds[-1]
    tail = objective[-max(2, len(objective) // 4) :]
    moved = max(tail) - min(tail)
    size = max(abs(objective[-1]), 1e-12)
    if len(objective) < 4 or moved > _STANDSTILL * size:
        return Verdict("improving", last, f"still moving at round {last}")
    if optimum is None or objective[-1] - optimum <= _ARRIVED * max(abs(optimum), 1e-12):
        return Verdict("converged", last, f"converged by round {last}")
    gap = objective[-1] - optimum
    return Verdict("stalled", last, f"stalled {gap:.3g} above the optimum by round {last}")
