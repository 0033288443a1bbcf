"""Claims of the sources, each of which a measured number confirms or refutes."""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from experiments.report.plots import style
from experiments.report.rows import plain

_CONFIDENCE = 0.95
NEEDS_THE_FULL_RUN, NOT_DECIDED = "needs the full run", "not decided"
_FEWEST_SEEDS = 3  # rates that are enough to decide
OURS = "Expected by us"  # heads the rows of a table that no source states


class Claim(NamedTuple):
    """A statement, and a number that confirms or refutes it.

    Claims with one text are one statement, in several cases or of several parts.

    Attributes:
      text: the statement, as its source makes it, understandable without context.
      measured: the number that decides.
      needed: the threshold.
      at_least: whether the number has to be at least the threshold; at most if ``False``.
      interval: a confidence interval over the seeds, ``None`` for a deterministic number. The whole
        interval must be beyond the threshold: neither of two methods with equal results beats the
        other.
      source: who makes the statement, and where: ``Li et al. (ICLR 2020), Theorem 1``. Empty for
        an expectation of our own.
      measure: what the number is, with its unit: ``difference in F1``.
      case: the setting within the run, a column of the table: ``by digit``.
      part: what the number is about, if several decide the statement together: one of the rivals.
      examples: the exact p-value of McNemar's test over held-out examples, ``None`` if the number
        does not rest on them. Above 0.05 the claim does not hold.
      quick: whether a run with ``--quick`` can decide it.
      seeds: the number of seeds over which the number is a mean; ``None`` if it is not random. One
        or two seeds do not decide a claim.
      rates: if the number is a best rate, how many rates were tried; one rate decides nothing.
      at_edge: whether a method that is compared is best at the edge of its grid. Then another may
        be ahead at rates beyond it, and a claim that the number confirms is not decided.
    """

    text: str
    measured: float
    needed: float
    at_least: bool = True
    interval: tuple[float, float] | None = None
    source: str = ""
    measure: str = ""
    case: str = ""
    part: str = ""
    examples: float | None = None
    quick: bool = True
    seeds: int | None = None
    rates: int | None = None
    at_edge: bool = False

    @property
    def margin(self) -> float:
        """The distance from the worse end of the interval to the threshold; negative if wrong."""
        worse = self.interval[not self.at_least] if self.interval else self.measured
        return worse - self.needed if self.at_least else self.needed - worse

    @property
    def holds(self) -> bool:
        """Whether the claim is confirmed; a number that is not finite does not confirm it."""
        equal = self.interval is None and self.margin == 0
        found = self.examples is None or self.examples <= 1 - _CONFIDENCE
        return math.isfinite(self.margin) and (self.margin > 0 or equal) and found

    def as_json(self, quick: bool = False) -> dict[str, Any]:
        """Return the claim for a summary; ``open`` is the reason if it is not decided.

        Example:
          >>> Claim("two is large", 2.0, 1.5).as_json()["holds"]
          True
          >>> Claim("two is large", 2.0, 1.5, seeds=2).as_json()["open"]
          'not decided'
        """
        decided = (self.seeds is None or self.seeds >= _FEWEST_SEEDS) and self.rates != 1
        reason = None if decided and not (self.at_edge and self.holds) else NOT_DECIDED
        if quick and not self.quick:
            reason = NEEDS_THE_FULL_RUN
        words = ("at most", "at least") if self.interval is None else ("below", "above")
        return {
            "claim": self.text,
            "source": self.source,
            "measure": self.measure,
            "case": self.case,
            "part": self.part,
            "measured": plain(float(self.measured)),
            "interval": plain(self.interval),
            "relation": words[self.at_least],
            "needed": self.needed,
            "holds": None if reason else self.holds,
            "open": reason,
            "margin": plain(float(self.margin)),
            "examples": self.examples,
        }


# x of a method and y of ours, the first, or the x of all others.
_COMPARISONS = {
    "its": lambda x, y, others: x,
    "behind": lambda x, y, others: y - x,
    "beyond": lambda x, y, others: x - y,
    "over": lambda x, y, others: x / y,
    "first": lambda x, y, others: x - np.max(others, axis=0),
}


def judged(
    table: str, numbers: Mapping[str, Any], case: str = "", quick: bool = False
) -> list[Claim]:
    """Return the claims of the rows of a table of statements for which there are numbers.

    A row is ``column | statement | what the number is | threshold``; indented lines continue it. A
    line without bars is the source of the rows below it, or ``OURS``. The thresholds are

    - ``>= 2`` and ``<= 2``: for every number, so that the least or the largest decides;
    - ``> 2`` and ``< 2``: for the mean over the seeds, as in ``over_seeds``; a quick run cannot
      decide them.

    With ``| full run`` at its end a row needs the full run. A column ``f1 behind b c`` compares the
    methods b and c, where the numbers have them, with the first method of the numbers, ours. With x
    of a method and y of ours, ``its`` is x, ``behind`` is y - x, ``beyond`` is x - y, ``over`` is
    x / y, and ``first`` is x minus the largest of all others.

    Args:
      table: the rows.
      numbers: for each column a number or an array, or a dictionary of these by part or, where a
        row compares them, by method. A pair of a number and a dictionary has further fields of the
        claim. Columns that no row has are refused.
      case: the setting within the run.
      quick: whether a quick run can decide the rows on every number.

    Example:
      >>> rows = "f1 behind b c | a is ahead of both | difference | >= 0"
      >>> first, second = judged(rows, {"f1": {"a": 0.9, "b": 0.5, "c": 1.0}})
      >>> first.part, first.measured, first.holds, second.holds
      ('b', 0.4, True, False)
    """
    found, source, unused = [], "", set(numbers)
    for line in re.sub(r"\n\s+", " ", table.strip()).splitlines():
        key, *cells = (cell.strip() for cell in line.split("|"))
        if not cells:
            source = "" if key == OURS else key
            continue
        (column, *how), (text, measure, threshold, *full_run) = key.split(), cells
        unused.discard(column)
        if (by := numbers.get(column)) is None:
            continue
        sign, needed = threshold.split()
        at_least = sign.startswith(">")
        by = _compared(by, *how) if how else by if isinstance(by, Mapping) else {"": by}
        for part, values in by.items():
            values, fields = values if isinstance(values, tuple) else (values, {})
            if sign in (">", "<"):
                claim = over_seeds(text, values, float(needed), at_least)
            else:
                worst = float(np.min(values) if at_least else np.max(values))
                claim = Claim(text, worst, float(needed), at_least, quick=quick and not full_run)
            named = {"source": source, "measure": measure, "case": case, **fields}
            found.append(claim._replace(**named, part=style(part)[0] if part else ""))
    if unused:
        raise ValueError(f"no statement is about {', '.join(sorted(unused))}.")
    return found


def _compared(by: Mapping[str, Any], comparison: str, *methods: str) -> dict[str, Any]:
    """Return a comparison of each method that has numbers; one alone has no name."""
    found = {}
    for name in (name for name in methods if name in by):
        others = [number for other, number in by.items() if other != name]
        number = _COMPARISONS[comparison](by[name], next(iter(by.values())), others)
        found[name if len(methods) > 1 else ""] = number
    return found


def over_seeds(
    text: str, values: ArrayLike, needed: float, at_least: bool = True, **fields: Any
) -> Claim:
    """Return a claim about a mean over seeds: its 95 % interval must be beyond the threshold.

    Pass the paired differences to compare two methods: with one seed both have the same cohorts and
    minibatches, whose common effect cancels. The interval is Student's t interval.

    Example:
      >>> claim = over_seeds("a is larger than b", [0.2, 0.3, 0.25], 0.0)
      >>> [round(end, 3) for end in claim.interval], claim.holds
      ([0.126, 0.374], True)
      >>> over_seeds("a is larger than b", [0.2, -0.1, 0.25], 0.0).holds
      False
    """
    found, half = np.asarray(values, float), math.nan
    mean = float(found.mean())
    if len(found) > 1 and np.isfinite(found).all():
        error = float(found.std(ddof=1)) / math.sqrt(len(found))
        half = error * float(special.stdtrit(len(found) - 1, (1 + _CONFIDENCE) / 2))
    interval = (mean - half, mean + half)
    fields = {"interval": interval, "quick": False, "seeds": len(found)} | fields
    return Claim(text, mean, needed, at_least, **fields)


def mcnemar(first: ArrayLike, second: ArrayLike) -> float:
    """Return the p-value of McNemar's exact test that two classifiers are equally accurate.

    Of the examples that only one of the two has right, each has it with probability 1/2 under this
    hypothesis. Seeds share their examples, so an example counts once, for the method that has it
    right in more seeds: ten seeds of one test set are not ten test sets.

    Args:
      first: which examples the first method has right, axes [seeds, examples] or [examples].
      second: the same for the second method.

    Example:
      >>> mcnemar([1, 1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0])
      0.03125
      >>> mcnemar([1, 1, 0], [1, 0, 0])
      1.0

    References:
      McNemar, Note on the sampling error of the difference between correlated proportions, 1947.
    """
    lead = np.atleast_2d(np.asarray(first, int) - np.asarray(second, int)).sum(axis=0)
    wins, losses = int((lead > 0).sum()), int((lead < 0).sum())
    return min(1.0, float(2 * special.bdtr(min(wins, losses), wins + losses, 0.5)))
