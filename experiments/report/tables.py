"""A summary in words and tables, for the terminal, the page and Markdown."""

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.report.claims import NEEDS_THE_FULL_RUN
from experiments.report.plots import style, without_math, words
from experiments.report.rows import Row, Summary, select
from experiments.report.summary import Criterion, edges
from experiments.report.verdict import LEGEND

Entry = dict[str, Any]  # a claim as in a summary
_TIED = 5e-4  # scores with at most this relative difference have the same three digits


def best_points(summary: dict, measures: Container[str] = ()) -> list[dict[str, Any]]:
    """Return each algorithm's best point, with its density and these measures of a sweep's summary.

    A star marks a value at the edge of a grid.
    """
    found = []
    for name, entry in summary.get("algorithms", {}).items():
        judge, best = entry["criterion"]["measure"], entry["best"].items()
        row = {words(field): _starred(field, value, entry) for field, value in best}
        row = {"algorithm": style(name)[0]} | row | {without_math(words(judge)): entry["score"]}
        for measure, value in entry["last"].items():
            if measure != judge and (measure in measures or measure == "density"):
                row[without_math(words(measure))] = value
        for measure, value in entry.get("final_from", {}).items():
            row[f"{words(measure)} final from"] = value
        row["diverged"] = f"{len(entry['diverged'])}/{entry['points'] * entry['seeds']}"
        found.append(row | {"verdict": entry["verdict"].split(":")[0]})
    return found


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


def claims(summary: dict, source: bool) -> list[dict[str, Any]]:
    """Return the statements of the sources, or ours, one row each, with a column for each case."""
    return lines(statements(by_case(summary.get("claims", []), source)))


def by_case(entries: Sequence[dict], source: bool) -> dict[str, list[dict]]:
    """Return the claims of the sources, or ours, by case; those of no case under ``verdict``."""
    columns: dict[str, list[dict]] = {}
    for entry in entries:
        if bool(entry["source"]) is source:
            columns.setdefault(entry["case"] or "verdict", []).append(entry)
    return columns


def headline(summary: Summary, brief: bool = False) -> str:
    """Return the result in a few sentences, or one: which algorithm is best, which claims hold.

    Example:
      >>> entry = {"best": {}, "score": 0.9, "verdict": "improving", "diverged": [], "points": 2,
      ...          "seeds": 3, "criterion": Criterion("f1", "max", 10)._asdict(), "last": {}}
      >>> headline({"algorithms": {"fed_mid": entry, "fed_avg": entry | {"score": 0.7}}})
      'FedMiD has the highest F1 score, 0.9; FedAvg is next with 0.7.'
    """
    found = [summary["verdict"]] if "verdict" in summary else []
    if entries := summary.get("algorithms", {}):
        found += _leader(entries)
        runs = sum(entry["points"] * entry["seeds"] for entry in entries.values())
        if diverged := sum(len(entry["diverged"]) for entry in entries.values()):
            found.append(f"Of {runs:,} runs {diverged:,} diverged.")
    if brief and entries:
        return found[0]
    # A quick run leaves the claims of the source open, and its command says so.
    claims = [claim for claim in summary.get("claims", []) if claim["source"]]
    if any(claim.get("open") != NEEDS_THE_FULL_RUN for claim in claims):
        found.append(_counted(claims))
    return " ".join(found)


def _leader(entries: dict[str, Any]) -> Iterator[str]:
    """Yield sentences on the best score, what decides a tie, and the distance to the optimum."""
    criterion = Criterion(**next(iter(entries.values()))["criterion"])
    sign = -1 if criterion.goal == "max" else 1
    finite = [n for n, e in entries.items() if e["score"] is not None and math.isfinite(e["score"])]
    if not finite:
        yield "Every run diverged: take smaller rates."
        return
    ranked = sorted(finite, key=lambda name: sign * entries[name]["score"])
    best, measure = entries[ranked[0]]["score"], without_math(words(criterion.measure))
    near = max(criterion.within, _TIED * abs(best))
    tied = [name for name in ranked if abs(entries[name]["score"] - best) <= near]

    def above(name: str) -> float:
        return entries[name]["last"].get("suboptimality", math.inf)

    def decides(name: str) -> float:
        """Return the mean first round at the target, or the density without a target."""
        reached: list[Any] = entries[name].get("reached") or [None]
        if criterion.reach is None:
            return entries[name]["last"].get("density", math.inf)
        return math.inf if None in reached else sum(reached) / len(reached)

    tied.sort(key=lambda name: (decides(name), above(name) if criterion.reach else 0.0))
    names = [style(name)[0] for name in [*tied, *ranked[len(tied) :]]]
    who = " and ".join(filter(None, (", ".join(names[: len(tied) - 1]), names[len(tied) - 1])))
    if len(ranked) == 1:
        yield f"{who} has {measure} {short(best)} at its best point."
    else:
        told = f"{who} {'tie at' if len(tied) > 1 else 'has'} the "
        told += f"{'highest' if sign < 0 else 'lowest'} {measure}, {short(best)}"
        if len(tied) < len(ranked):
            score = entries[ranked[len(tied)]]["score"]
            told += f"; {names[len(tied)]} is next with {short(score)}"
        yield f"{told}."
    if len(tied) > 1 and decides(tied[0]) < decides(tied[1]):
        least = decides(tied[0])
        yield (
            f"Of these {names[0]} is the sparsest, with density {short(least)}."
            if criterion.reach is None
            else f"Of these {names[0]} reaches {criterion.reach:g} first, in round {least:.4g}."
        )
    last, gap = entries[tied[0]]["last"], above(tied[0])
    if math.isfinite(gap):
        least = abs(last["objective"] - gap)
        share = f" {short(gap)}, {100 * gap / least:.2g} %," if gap > 1e-5 * least else ""
        yield f"The objective of {names[0]} ends{share} {'above' if share else 'at'} the optimum."
    held = [f"{words(name)} {short(last[name])}" for name in HELD_OUT if name in last]
    if held and criterion.measure not in HELD_OUT:
        yield f"On held-out rows {names[0]} has {' and '.join(held)}."


HELD_OUT = ("validation_loss", "accuracy", "r2")  # measures on held-out rows


def _counted(claims: Sequence[dict]) -> str:
    """Return how many statements of the sources are confirmed, refuted, and neither."""
    own: dict[str, list[Any]] = {}
    for claim in claims:
        own.setdefault(claim["claim"], []).append(claim["holds"])
    # One number that refutes a statement refutes it, and one that is open leaves it open.
    found = [next((kind for kind in (False, None) if kind in of), True) for of in own.values()]
    told = {True: "confirmed", False: "refuted", None: "not decided"}
    counts = [f"{found.count(kind)} {words}" for kind, words in told.items() if kind in found]
    return f"The source's claims: {', '.join(counts)}."


def remarks_on_points(summary: Summary) -> list[str]:
    """Explain the stars, short names and verdicts of the best points."""
    entries = summary.get("algorithms", {})
    found = []
    if any(entry.get("edges") for entry in entries.values()):
        found.append(
            "* is the edge of a grid, beyond which a better point may lie: --config.extend=True "
            "looks there."
        )
    if any(style(name)[0].endswith("-OSP") for name in entries):
        found.append("OSP: only the server takes prox steps.")
    verdicts = {entry["verdict"].split(":")[0].split(" ")[0] for entry in entries.values()}
    told = [f"{name} is {meaning}" for name, meaning in LEGEND.items() if name in verdicts]
    return [*found, f"Verdicts on the objective: {'; '.join(told)}."] if told else found


def seconds_of(summary: Summary) -> float:
    """Return the seconds that a run took."""
    entries = summary.get("algorithms", {})
    return summary.get("seconds") or sum(entry["seconds"] for entry in entries.values())


def best_point(points: Sequence[Row], fields: Iterable[str]) -> dict[str, str]:
    """Return the fields of the row that is ``best``, starred at the edges of what was tried.

    Example:
      >>> rows = [{"client_lr": 0.01, "best": False}, {"client_lr": 0.1, "best": True}]
      >>> best_point(rows, ["client_lr", "server_lr"])
      {'client rate': '0.1*'}
    """
    [best] = select(points, best=True)
    named = {field: best[field] for field in fields if best.get(field) is not None}
    found = edges(named, [tuple(row[field] for field in named) for row in points])
    return {words(at): _starred(at, value, {"edges": found}) for at, value in named.items()}


def _starred(field: str, value: float, entry: dict) -> str:
    return f"{value:g}*" if field in entry.get("edges", {}) else f"{value:g}"


def short(value: float | None) -> str:
    """Return four digits of a number, or a dash."""
    return "-" if value is None or math.isnan(value) else f"{value:.4g}"


def cell(value: Any) -> str:
    """Return an entry of a table in words; a mean and half its interval have the digits it leaves.

    Example:
      >>> cell(None), cell(True), cell(0.123456), cell((0.81234, 0.0123))
      ('-', 'yes', '0.1235', '0.812 ± 0.012')
    """
    if isinstance(value, tuple):
        mean, half = value
        if not half > 5e-5 * abs(mean):
            return short(mean)
        digits = max(0, 1 - math.floor(math.log10(half)))
        return f"{mean:.{digits}f} ± {half:.{digits}f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return short(value) if isinstance(value, float | None) else without_math(str(value))


def markdown(rows: Sequence[Row]) -> str:
    """Return rows as a table in Markdown; no text without rows."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    body = [[cell(row.get(name)) for name in names] for row in rows]
    table = [names, ["---"] * len(names), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in table) if rows else ""
