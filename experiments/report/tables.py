"""A summary in words and tables, for the terminal, the page and Markdown."""

import math
from collections.abc import Container, Iterable, Sequence
from typing import Any

from experiments.report.claims import NEEDS_THE_FULL_RUN, NOT_DECIDED
from experiments.report.names import without_math, words
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.report.statements import lines, statements
from experiments.report.summary import Criterion, edges

_TIED = 1e-4  # scores with at most this relative difference have the same printed digits


def best_points(summary: dict, measures: Container[str] = ()) -> list[dict[str, Any]]:
    """Return each algorithm's best point and measures; a star marks a value at a grid's edge.

    Args:
      summary: the summary of a sweep.
      measures: the measures to show beside the criterion.
    """
    return [
        {"algorithm": style(name)[0]}
        | {words(field): _starred(field, value, entry) for field, value in entry["best"].items()}
        | {without_math(words(entry["criterion"]["measure"])): entry["score"]}
        | {
            without_math(words(measure)): value
            for measure, value in entry["last"].items()
            if measure in measures and measure != entry["criterion"]["measure"]
        }
        | {
            f"{words(name)} final from": value
            for name, value in entry.get("final_from", {}).items()
        }
        | {"diverged": diverged_runs(entry)}
        | {"verdict": entry["verdict"].split(":")[0]}
        for name, entry in summary.get("algorithms", {}).items()
    ]


_SPREAD = {
    "mean": "mean",
    "p10": "10th percentile",
    "p50": "median",
    "p90": "90th percentile",
    "worst": "worst tenth",
    "gain": "gain over the common model",
}


def by_client(summary: dict) -> list[dict[str, Any]]:
    """Return how the loss at each best point is distributed over the clients, one row a model.

    Example:
      >>> last = {f"loss_{name}": 0.5 for name in ("mean", "p10", "p50", "p90", "worst")}
      >>> by_client({"algorithms": {"fed_avg": {"last": last}}})[0]["worst tenth"]
      0.5
    """
    return [
        {"algorithm": style(name)[0], "model": model}
        | {
            word: entry["last"][found]
            for end, word in _SPREAD.items()
            if (found := f"{column}_{end}") in entry["last"]
        }
        for name, entry in summary.get("algorithms", {}).items()
        for column, model in (("loss", "common"), ("own_loss", "own"))
        if f"{column}_worst" in entry["last"]  # and no seed diverged
    ]


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


def headline(summary: Summary) -> str:
    """Return the result in at most two sentences: which algorithm is best, and which claims hold.

    Example:
      >>> entry = {"best": {}, "score": 0.9, "verdict": "improving", "diverged": [], "points": 2,
      ...          "seeds": 3, "criterion": Criterion("f1", "max", 10)._asdict()}
      >>> headline({"algorithms": {"fed_mid": entry, "fed_avg": entry | {"score": 0.7}}})
      'FedMiD has the highest F1 score, 0.9, and FedAvg is next with 0.7. Of 12 runs 0 diverged.'
    """
    found = [summary["verdict"]] if "verdict" in summary else []
    if entries := summary.get("algorithms", {}):
        found.append(_leader(entries))
    if claims := [claim for claim in summary.get("claims", []) if claim["source"]]:
        found.append(_counted(claims))
    elif entries:
        runs, diverged = _runs(entries)
        found.append(f"Of {runs:,} runs {diverged:,} diverged.")
    return " ".join(found)


def _leader(entries: dict[str, Any]) -> str:
    """Return the sentence on the best score and the next."""
    criterion = Criterion(**next(iter(entries.values()))["criterion"])
    sign = -1 if criterion.goal == "max" else 1
    ranked = sorted(
        (name for name, entry in entries.items() if entry["score"] is not None),
        key=lambda name: sign * entries[name]["score"],
    )
    ranked = [name for name in ranked if math.isfinite(entries[name]["score"])]
    if not ranked:
        return "Every run diverged: take smaller rates."
    best, measure = entries[ranked[0]]["score"], words(criterion.measure)
    near = max(criterion.within, _TIED * abs(best))
    names = [style(name)[0] for name in ranked]
    tied = [name for name in ranked if abs(entries[name]["score"] - best) <= near]
    who = " and ".join(filter(None, (", ".join(names[: len(tied) - 1]), names[len(tied) - 1])))
    if len(ranked) == 1:
        return f"{who} has {measure} {short(best)} at its best point."
    told = f"{who} {'have' if len(tied) > 1 else 'has'} the {'highest' if sign < 0 else 'lowest'} "
    if len(tied) == len(ranked):
        return f"{told}{measure}, {short(best)}."
    following = short(entries[ranked[len(tied)]]["score"])
    return f"{told}{measure}, {short(best)}, and {names[len(tied)]} is next with {following}."


def _counted(claims: Sequence[dict]) -> str:
    """Return how many statements of the sources are confirmed, refuted, and neither."""
    found = {True: "confirmed", False: "refuted", NEEDS_THE_FULL_RUN: "left to the full run"}
    own: dict[str, list[Any]] = {}
    for claim in claims:
        own.setdefault(claim["claim"], []).append(claim.get("open") or claim["holds"])
    # One number that refutes a statement refutes it, and one that is open leaves it open.
    kinds = [
        found.get(False if False in kinds else next((k for k in kinds if k is not True), True))
        or NOT_DECIDED
        for kinds in own.values()
    ]
    counts = [f"{kinds.count(kind)} {kind}" for kind in (*found.values(), NOT_DECIDED)]
    counted = ", ".join(count for count in counts if not count.startswith("0 "))
    return f"The source's claims: {counted}."


def _runs(entries: dict[str, Any]) -> tuple[int, int]:
    """Return how many runs there were, and how many diverged."""
    runs = sum(entry["points"] * entry["seeds"] for entry in entries.values())
    return runs, sum(len(entry["diverged"]) for entry in entries.values())


def remarks_on_points(summary: Summary) -> str:
    """Explain the stars of the best points, if there are any, and count the runs that diverged."""
    entries, found = summary.get("algorithms", {}), []
    if any(entry.get("edges") for entry in entries.values()):
        found.append(EDGE)
    runs, diverged = _runs(entries)
    if diverged:
        found.append(f"Of {runs:,} runs {diverged:,} diverged; rows.jsonl says where.")
    return " ".join(found)


EDGE = (
    "* is the edge of a grid, beyond which a better point may lie: --config.extend=True looks "
    "there."
)


def privacy_warnings(summary: dict) -> list[str]:
    """Return the sentences on a budget that ended the runs, and on a large delta, if any."""
    known = summary.get("privacy", {})
    return [known[name] for name in ("budget", "large delta") if name in known]


def diverged_runs(entry: dict[str, Any]) -> str:
    """Return how many of an algorithm's runs diverged, as in ``84/147``."""
    return f"{len(entry['diverged'])}/{entry['points'] * entry['seeds']}"


def marked(value: float, tried: Sequence[float]) -> str:
    """Return a value of a grid, with a star if it is the smallest or largest of several.

    Example:
      >>> marked(0.1, (0.01, 0.1)), marked(0.1, (0.1,))
      ('0.1*', '0.1')
    """
    found = edges({"value": value}, [(one,) for one in tried])
    return _starred("value", value, {"edges": found})


def best_point(points: Sequence[Row], fields: Iterable[str]) -> dict[str, str]:
    """Return the fields of a study's best point, starred at the edges of what was tried.

    Args:
      points: rows of the points of one grid, one of which is ``best``.
      fields: the fields to show; those that no point has are left out.
    """
    [best] = select(points, best=True)
    return {
        words(field): marked(best[field], [row[field] for row in points])
        for field in fields
        if best.get(field) is not None
    }


def _starred(field: str, value: float, entry: dict) -> str:
    return f"{value:g}*" if field in entry.get("edges", {}) else f"{value:g}"


def short(value: float | None) -> str:
    """Return four digits of a number, or a dash."""
    return "-" if value is None or math.isnan(value) else f"{value:.4g}"
