"""What the sources say, beside what was measured: a claim holds or does not, by a margin."""

import math
from typing import Any, NamedTuple


class Claim(NamedTuple):
    """One statement of a source that a number can confirm or refute.

    Attributes:
      text: the statement, in words that need no context.
      measured: the number that decides.
      needed: what it is held against.
      at_least: whether it has to be at least as large; at most, if not.
    """

    text: str
    measured: float
    needed: float
    at_least: bool = True

    @property
    def margin(self) -> float:
        """By how much the number is on the right side; negative on the wrong one."""
        difference = self.measured - self.needed
        return difference if self.at_least else -difference

    @property
    def holds(self) -> bool:
        """Whether the claim is confirmed; a number that is not finite confirms nothing."""
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
