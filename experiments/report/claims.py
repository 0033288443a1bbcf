"""Claims of the sources, each confirmed or refuted by a measured number."""

import math
from typing import Any, NamedTuple


class Claim(NamedTuple):
    """One statement of a source that a number can confirm or refute.

    Attributes:
      text: the statement, which should make sense on its own.
      measured: the number that decides.
      needed: the threshold.
      at_least: whether the number has to be at least the threshold, or else at most.
    """

    text: str
    measured: float
    needed: float
    at_least: bool = True

    @property
    def margin(self) -> float:
        """The distance to the threshold; negative on the wrong side."""
        difference = self.measured - self.needed
        return difference if self.at_least else -difference

    @property
    def holds(self) -> bool:
        """Whether the claim is confirmed; never by a number that is not finite."""
        return math.isfinite(self.measured) and self.margin >= 0

    def as_json(self) -> dict[str, Any]:
        """For a summary.

        Example:
          >>> Claim("two is large", 2.0, 1.5).as_json()
          {'claim': 'two is large', 'measured': 2.0, 'at least': 1.5, 'holds': True, 'margin': 0.5}
        """
        relation = "at least" if self.at_least else "at most"
        finite = math.isfinite(self.margin)
        return {
            "claim": self.text,
            "measured": self.measured if math.isfinite(self.measured) else None,
            relation: self.needed,
            "holds": self.holds,
            "margin": float(f"{self.margin:.6g}") if finite else None,
        }
