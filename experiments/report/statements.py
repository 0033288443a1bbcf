"""Claims as statements: a line for each statement, a column for each case, and what came out."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments.report.claims import NOT_DECIDED

Entry = dict[str, Any]  # a claim as in a summary

HOLDS, FAILS, UNDECIDED = "holds", "fails", NOT_DECIDED
# Why a statement of a source does not hold, as written before a reason.
THE_SOURCES, NEEDS_DATA = "the source's", "needs data"
KINDS = (THE_SOURCES, NEEDS_DATA, UNDECIDED, FAILS)


class Statement(NamedTuple):
    """A statement with its numbers.

    Attributes:
      text: the statement.
      source: who makes it, and where; empty for us.
      decided_by: what the number is, and the threshold.
      cells: by column, whether all numbers of a case confirm it, ``None`` if it is open, and the
        verdict in words with the number nearest to refuting it.
    """

    text: str
    source: str
    decided_by: str
    cells: dict[str, tuple[bool | None, str]]

    def verdict(self, columns: Sequence[str]) -> str:
        """Return ``holds``, ``fails`` or ``not decided``, over these columns.

        One case that refutes it makes it fail, and one that is open leaves it undecided.
        """
        found = {holds for name, (holds, _) in self.cells.items() if name in columns}
        return FAILS if False in found else UNDECIDED if None in found or not found else HOLDS


def statements(columns: Mapping[str, Sequence[Entry]]) -> list[Statement]:
    """Return the statements of claims by the name of their column, in order of appearance.

    Example:
      >>> from experiments.report.claims import Claim
      >>> own = [Claim("a is ahead", lead, 0.0, part=name) for name, lead in (("b", 1), ("c", 2))]
      >>> [found] = statements({"first": [claim.as_json() for claim in own]})
      >>> found.cells["first"]
      (True, 'yes, 2 of 2: b 1')
    """
    by_text: dict[tuple[str, str], dict[str, list[Entry]]] = {}
    for name, own in columns.items():
        for entry in own:
            cases = by_text.setdefault((entry["claim"], entry["source"]), {})
            cases.setdefault(name, []).append(entry)
    found = []
    for (text, source), cases in by_text.items():
        entries = [entry for same in cases.values() for entry in same]
        thresholds = list(dict.fromkeys(map(_threshold, entries)))
        # Thresholds that differ stand with their numbers.
        shared = thresholds[0] if len(thresholds) == 1 else ""
        cells = {name: _cell(same, threshold=not shared) for name, same in cases.items()}
        measures = " or ".join(dict.fromkeys(filter(None, (e["measure"] for e in entries))))
        decided_by = ", ".join(filter(None, (measures, shared)))
        found.append(Statement(text, source, decided_by, cells))
    return found


def _cell(entries: Sequence[Entry], threshold: bool) -> tuple[bool | None, str]:
    verdicts = [entry["holds"] for entry in entries]
    holds = False if False in verdicts else None if None in verdicts else True

    def nearest(entry: Entry) -> tuple[int, float]:
        margin = entry.get("margin")
        order = [False, None, True].index(entry["holds"])
        return order, -float("inf") if margin is None else margin

    worst = min(entries, key=nearest)
    shown = "-" if worst["measured"] is None else f"{worst['measured']:.4g}"
    interval = worst.get("interval")
    if interval and None not in interval:
        shown += f" ({interval[0]:.4g} to {interval[1]:.4g})"
    if (chance := worst.get("examples")) is not None:
        shown += f", p = {chance:.2g} over examples"
    words = {True: "yes", False: "no", None: worst.get("open")}[holds]
    count = f", {verdicts.count(True)} of {len(entries)}" if len(entries) > 1 else ""
    shown = f"{worst['part']} {shown}".strip() + (f", {_threshold(worst)}" if threshold else "")
    return holds, f"{words}{count}: {shown}"


def _threshold(entry: Entry) -> str:
    return f"{entry['relation']} {entry['needed']:.4g}"


def lines(found: Sequence[Statement]) -> list[dict[str, Any]]:
    """Return a table of the statements.

    Where every statement is of the same source, only the place is named, if they differ.
    """
    authors, places = {author(one.source) for one in found}, {one.source for one in found}
    columns = list(dict.fromkeys(name for one in found for name in one.cells))
    table = []
    for one in found:
        # The verdicts come first, visible on a narrow screen.
        cells = {name: one.cells.get(name, (None, None))[1] for name in columns}
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


# What came out of one statement, and of several.
_WORDS = {
    HOLDS: ("holds", "hold"),
    THE_SOURCES: ("fails for a reason of its source", "fail for a reason of their source"),
    FAILS: ("fails", "fail"),
    UNDECIDED: ("is not decided", "are not decided"),
    NEEDS_DATA: ("is about data that cannot be had", "are about data that cannot be had"),
}


def told(outcomes: Mapping[str, str], reasons: Mapping[str, str]) -> str:
    """Return what came out of a source's statements, in a sentence for each outcome.

    Args:
      outcomes: the outcome of each statement, by its text.
      reasons: why statements do not hold, of which the first clause is told.

    Example:
      >>> told({"a is ahead": "holds", "b is sparse": "fails"}, {"b is sparse": "it is dense; see"})
      'Of 2 statements 1 holds. One fails: "b is sparse" (it is dense).'
    """
    by_kind = {kind: [t for t, found in outcomes.items() if found == kind] for kind in _WORDS}
    held, count = len(by_kind[HOLDS]), len(outcomes)
    if count > 1 and len({*outcomes.values()}) == 1:
        return f"All {count} statements {_WORDS[next(iter(outcomes.values()))][1]}."
    statements = "statements" if count > 1 else "statement"
    parts = [f"Of {count} {statements} {held or 'none'} {_WORDS[HOLDS][held > 1]}."]
    for kind, texts in by_kind.items():
        if texts and kind != HOLDS:
            # The first clause of each reason.
            clauses = [re.split(r"[;:]\s|\.(?:\s|$)", reasons.get(text, ""))[0] for text in texts]
            quoted = (
                f'"{text}" ({why})' if why else f'"{text}"'
                for text, why in zip(texts, clauses, strict=True)
            )
            number = {1: "One", 2: "Two", 3: "Three"}.get(len(texts), str(len(texts)))
            parts.append(f"{number} {_WORDS[kind][len(texts) > 1]}: {', '.join(quoted)}.")
    return " ".join(parts)
