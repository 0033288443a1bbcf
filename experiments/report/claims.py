"""Claims of the sources, each confirmed or refuted by a measured number."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

_CONFIDENCE = 0.95


class Claim(NamedTuple):
    """One statement that a number can confirm or refute.

    Attributes:
      text: the statement, which should make sense on its own.
      measured: the number that decides.
      needed: the threshold.
      at_least: whether the number has to be at least the threshold, or else at most.
      interval: where the number lies, given its spread over the seeds; all of it has to be beyond
        the threshold, so that methods that do the same are not better than each other. ``None``
        where there is no chance in it.
      source: whether a source says so; ``False`` for an expectation of our own.
      quick: whether a run with ``--quick`` can decide it.
    """

    text: str
    measured: float
    needed: float
    at_least: bool = True
    interval: tuple[float, float] | None = None
    source: bool = True
    quick: bool = True

    @property
    def margin(self) -> float:
        """The distance to the threshold, from the worse end of the interval; negative if wrong."""
        worse = self.measured
        if self.interval is not None:
            worse = self.interval[0 if self.at_least else 1]
        return worse - self.needed if self.at_least else self.needed - worse

    @property
    def holds(self) -> bool:
        """Whether the claim is confirmed; never by a number that is not finite."""
        return math.isfinite(self.margin) and (self.margin > 0 or self._equality_holds)

    @property
    def _equality_holds(self) -> bool:
        return self.interval is None and self.margin == 0

    @property
    def relation(self) -> str:
        """How the number has to lie to the threshold, in words."""
        if self.interval is None:
            return "at least" if self.at_least else "at most"
        return "above" if self.at_least else "below"

    def as_json(self, quick: bool = False) -> dict[str, Any]:
        """For a summary; ``holds`` is null where a quick run cannot decide.

        Example:
          >>> Claim("two is large", 2.0, 1.5).as_json()["holds"]
          True
        """
        return {
            "claim": self.text,
            "measured": _number(self.measured),
            "interval": self.interval and [_number(end) for end in self.interval],
            "relation": self.relation,
            "needed": self.needed,
            "holds": None if quick and not self.quick else self.holds,
            "margin": _number(self.margin),
            "source": self.source,
        }


def over_seeds(
    text: str,
    values: Sequence[float] | np.ndarray,
    needed: float,
    at_least: bool = True,
    *,
    source: bool = True,
) -> Claim:
    """A claim about a mean over seeds, which has to clear the threshold with 95 % confidence.

    Differences between two methods belong here pair by pair: seeds give both the same cohorts and
    minibatches, and what these do to both cancels. The interval is Student's. One seed has none,
    and decides nothing.

    Example:
      >>> claim = over_seeds("a is larger than b", [0.2, 0.3, 0.25], 0.0)
      >>> [round(end, 3) for end in claim.interval], claim.holds
      ([0.126, 0.374], True)
      >>> over_seeds("a is larger than b", [0.2, -0.1, 0.25], 0.0).holds
      False
    """
    values = np.asarray(values, float)
    mean = float(values.mean())
    if len(values) < 2 or not np.isfinite(values).all():
        interval = (math.nan, math.nan)
    else:
        error = float(values.std(ddof=1)) / math.sqrt(len(values))
        half = error * float(stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1))
        interval = (mean - half, mean + half)
    return Claim(text, mean, needed, at_least, interval, source, quick=False)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
