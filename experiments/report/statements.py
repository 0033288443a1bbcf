"""Claims as statements: a line for each statement, a column for each case, and what came out."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments.report.claims import NEEDS_THE_FULL_RUN, NOT_DECIDED

Entry = dict[str, Any]  # a claim as in a summary

HOLDS, FAILS, UNDECIDED = "holds", "fails", NOT_DECIDED
# Why a statement of a source does not hold, as written before a reason.
THE_SOURCES, NEEDS_DATA = "the source's", "needs data"
KINDS = (THE_SOURCES, NEEDS_DATA, UNDECIDED, FAILS)


class Cell(NamedTuple):
    """What one case says about a statement.

    Attributes:
      holds: whether all of its numbers confirm it; ``None`` if it is open.
      shown: the verdict and the number that decides, in words.
    """

    holds: bool | None
    shown: str


class Statement(NamedTuple):
    """A statement with its numbers.

    Attributes:
      text: the statement.
      source: who makes it, and where; empty for us.
      decided_by: what the number is, and the threshold.
      cells: what each case says, by the name of its column.
    """

    text: str
    source: str
    decided_by: str
    cells: dict[str, Cell]

    def verdict(self, columns: Sequence[str]) -> str:
        """Return ``holds``, ``fails`` or ``not decided``, over these columns.

        One case that refutes it makes it fail, and one that is open leaves it undecided.
        """
        found = {cell.holds for name, cell in self.cells.items() if name in columns}
        return FAILS if False in found else UNDECIDED if None in found or not found else HOLDS


def statements(columns: Mapping[str, Sequence[Entry]]) -> list[Statement]:
    """Return the statements in the order in which they first appear.

    Args:
      columns: the claims by the name of their column.

    Example:
      >>> from experiments.report.claims import Claim
      >>> own = [Claim("a is ahead", lead, 0.0, part=name) for name, lead in (("b", 1), ("c", 2))]
      >>> [found] = statements({"first": [claim.as_json() for claim in own]})
      >>> found.cells["first"].shown
      'yes, 2 of 2: b 1'
    """
    names = {(e["claim"], e["source"]): None for own in columns.values() for e in own}
    found = []
    for text, source in names:
        cases = {
            name: same
            for name, own in columns.items()
            if (same := [e for e in own if (e["claim"], e["source"]) == (text, source)])
        }
        entries = [entry for same in cases.values() for entry in same]
        measures = dict.fromkeys(entry["measure"] for entry in entries if entry["measure"])
        thresholds = dict.fromkeys(map(_threshold, entries))
        # A threshold that differs stands with its number.
        shared = list(thresholds) if len(thresholds) == 1 else []
        cells = {name: cell(same, threshold=not shared) for name, same in cases.items()}
        decided_by = ", ".join([" or ".join(measures), *shared] if measures else shared)
        found.append(Statement(text, source, decided_by, cells))
    return found


def cell(entries: Sequence[Entry], threshold: bool = False) -> Cell:
    """Return what the claims of one case say together: the number nearest to refuting them.

    Args:
      entries: the claims.
      threshold: whether to show the threshold as well.
    """
    verdicts = [entry["holds"] for entry in entries]
    holds = False if False in verdicts else None if None in verdicts else True
    worst = min(entries, key=_by_verdict)
    words = {True: "yes", False: "no", None: worst.get("open") or NEEDS_THE_FULL_RUN}[holds]
    if len(entries) > 1:
        words += f", {verdicts.count(True)} of {len(entries)}"
    number = _number(worst) + (f", {_threshold(worst)}" if threshold else "")
    return Cell(holds, f"{words}: {' '.join(filter(None, (worst['part'], number)))}")


def _by_verdict(entry: Entry) -> tuple[int, float]:
    margin = entry.get("margin")
    return [False, None, True].index(entry["holds"]), -float("inf") if margin is None else margin


def _threshold(entry: Entry) -> str:
    return f"{entry['relation']} {entry['needed']:.4g}"


def _number(entry: Entry) -> str:
    shown = "-" if entry["measured"] is None else f"{entry['measured']:.4g}"
    interval = entry.get("interval")
    if interval and None not in interval:
        shown += f" ({interval[0]:.4g} to {interval[1]:.4g})"
    if (chance := entry.get("examples")) is not None:
        shown += f", p = {chance:.2g} over examples"
    return shown


def lines(found: Sequence[Statement]) -> list[dict[str, Any]]:
    """Return a table of the statements.

    Where every statement is of the same source, only the place is named, if they differ.
    """
    authors, places = {author(one.source) for one in found}, {one.source for one in found}
    columns = list(dict.fromkeys(name for one in found for name in one.cells))
    table = []
    for one in found:
        # The verdicts come first, visible on a narrow screen.
        cells = {name: one.cells[name].shown if name in one.cells else None for name in columns}
        line = {"statement": one.text} | cells | {"decided by": one.decided_by}
        if len(places) > 1:
            place = one.source.removeprefix(f"{author(one.source)}, ")
            line["where"] = place if len(authors) == 1 else one.source
        table.append(line)
    return table


def author(source: str) -> str:
    """Return who makes a statement, without the place.

    Example:
      >>> author("Bai and Bullins (ICLR 2024), section 6, Figure 4")
      'Bai and Bullins (ICLR 2024)'
    """
    end = source.find("), ")
    return source[: end + 1] if end >= 0 else source.partition(", ")[0]


def outcome(statement: Statement, reported: Sequence[str], kind: str) -> str:
    """Return ``holds``, or one of ``KINDS``.

    Args:
      statement: a statement of a source.
      reported: the columns whose setting and data are the source's.
      kind: the kind of the reason that is written for it, if there is one.
    """
    if not any(name in statement.cells for name in reported):
        return NEEDS_DATA
    found = statement.verdict(reported)
    return kind if found == FAILS and kind in KINDS else found


def told(outcomes: Mapping[str, str], reasons: Mapping[str, str]) -> str:
    """Return what came out of a source's statements, in a sentence for each outcome.

    Args:
      outcomes: the outcome of each statement, by its text.
      reasons: why statements do not hold, of which the first clause is told.

    Example:
      >>> told({"a is ahead": "holds", "b is sparse": "fails"}, {"b is sparse": "it is dense; see"})
      'Of 2 statements 1 holds. One fails: "b is sparse" (it is dense).'
    """
    held = sum(found == HOLDS for found in outcomes.values())
    count = f"{len(outcomes)} statements" if len(outcomes) > 1 else "1 statement"
    parts = [f"Of {count} {held or 'none'} {'holds' if held < 2 else 'hold'}."]
    if len(found := {*outcomes.values()}) == 1 < len(outcomes):
        return (
            f"All {count} {({HOLDS: 'hold'} | {k: w[1] for k, w in _WORDS.items()})[found.pop()]}."
        )
    for kind, words in _WORDS.items():
        if texts := [text for text, found in outcomes.items() if found == kind]:
            number = {1: "One", 2: "Two", 3: "Three"}.get(len(texts), str(len(texts)))
            quoted = ", ".join(_quoted(text, reasons.get(text, "")) for text in texts)
            parts.append(f"{number} {words[len(texts) > 1]}: {quoted}.")
    return " ".join(parts)


def _quoted(text: str, reason: str) -> str:
    clause = re.split(r"[;:]\s|\.(?:\s|$)", reason)[0]
    return f'"{text}" ({clause})' if clause else f'"{text}"'


_WORDS = {
    THE_SOURCES: ("fails for a reason of its source", "fail for a reason of their source"),
    FAILS: ("fails", "fail"),
    UNDECIDED: ("is not decided", "are not decided"),
    NEEDS_DATA: (
        "is about data that cannot be had",
        "are about data that cannot be had",
    ),
}
