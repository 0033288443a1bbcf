"""How runs end, in a sentence each."""

import enum


class Status(enum.Enum):
    """How a run ended; the value of a member is its sentence.

    Example:
      >>> Status.SOLVED.sentence(round=30, detail="the violation is 0")
      'solved by round 30: the violation is 0'
    """

    SOLVED = "solved by round {round}: {detail}"
    UNSOLVED = (
        "not solved after {round} rounds: {detail}; allow more rounds, or take a method or a plan "
        "that is exact"
    )
    SPENT = "stopped after round {round}, the last that is allowed: {detail}"
    DIVERGED = "diverged by round {round}: {detail}; take a smaller rate"
    CONVERGED = "converged by round {round}"
    STALLED = "stalled {detail} above the optimum by round {round}"
    IMPROVING = "still falling at round {round}"
    MOVING = "still moving at round {round}"
    RISING = "rising at round {round}: {detail}"

    def sentence(self, round: int, detail: str = "") -> str:
        """Return the sentence of this status.

        Args:
          round: the round at which the run ended, or diverged.
          detail: what the sentence adds: a reason, a residual or a gap.
        """
        return self.value.format(round=round, detail=detail)
