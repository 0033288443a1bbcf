"""Claims as statements: a line for each statement, a column for each case, and what came out."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Entry = dict[str, Any]  # a claim as in a summary


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
