"""Rows of tables from a summary, for the page and for results in Markdown."""

from collections.abc import Container, Iterable, Sequence
from typing import Any

from experiments.report.claims import NEEDS_THE_FULL_RUN
from experiments.report.names import words
from experiments.report.plots import style
from experiments.report.rows import Row, select
from experiments.report.summary import edges

_COUNTS = ("participants", "dropped", "lost", "refused")


def best_points(summary: dict, measures: Container[str] | None = None) -> list[dict[str, Any]]:
    """Return each algorithm's best point and measures; a star marks a value at a grid's edge.

    Args:
      summary: the summary of a sweep.
      measures: the measures to show beside the criterion; all by default.
    """
    return [
        {"algorithm": style(name)[0]}
        | {words(field): _starred(field, value, entry) for field, value in entry["best"].items()}
        | {words(entry["criterion"]["measure"]): entry["score"]}
        | {
            f"last {words(measure)}": value
            for measure, value in entry["last"].items()
            if measure not in (entry["criterion"]["measure"], *_COUNTS)
            and (measures is None or measure in measures)
        }
        | {
            f"{words(name)} final from": value
            for name, value in entry.get("final_from", {}).items()
        }
        | {"diverged": diverged_runs(entry)}
        | {"seconds": entry["seconds"], "verdict": entry["verdict"].split(":")[0]}
        for name, entry in summary.get("algorithms", {}).items()
    ]


def claims(summary: dict, source: bool) -> list[dict[str, Any]]:
    """Return the claims of the sources, or our own expectations, one row each."""
    return [_claim(entry) for entry in summary.get("claims", []) if entry["source"] is source]


def edge_warnings(summary: dict) -> list[str]:
    """Return a sentence on the algorithms whose best point is at the edge of its grid, if any."""
    found = []
    for name, entry in summary.get("algorithms", {}).items():
        ends = [f"{end} {words(field)}" for field, end in entry.get("edges", {}).items()]
        if ends:
            found.append(f"{style(name)[0]} ({', '.join(ends)})")
    if not found:
        return []
    return [
        f"Best at the edge of its grid: {'; '.join(found)}. A better point may lie beyond; "
        "--config.extend=True goes on until it does not."
    ]


def privacy_warnings(summary: dict) -> list[str]:
    """Return the sentences on a budget that ended the runs, and on a large delta, if any."""
    known = summary.get("privacy", {})
    return [known[name] for name in ("budget", "large delta") if name in known]


def diverged(summary: dict) -> list[dict[str, Any]]:
    """Return the points that diverged, with their verdicts."""
    return [
        {"algorithm": name} | point
        for name, entry in summary.get("algorithms", {}).items()
        for point in entry["diverged"]
    ]


def diverged_runs(entry: dict[str, Any]) -> str:
    """Return how many of an algorithm's runs diverged, as in ``84/147``."""
    return f"{len(entry['diverged'])}/{entry['points'] * entry['seeds']}"


def relation(entry: dict[str, Any]) -> str:
    """Return the condition of a claim, as in ``at least 0.5``."""
    return f"{entry['relation']} {entry['needed']:.5g}"


def _claim(entry: dict[str, Any]) -> dict[str, Any]:
    holds = entry["holds"]
    reason = entry.get("open", NEEDS_THE_FULL_RUN)  # runs before 0.3 do not say
    interval = entry.get("interval")
    shown = "-" if not interval or None in interval else f"{interval[0]:.4g} to {interval[1]:.4g}"
    return {
        "claim": entry["claim"],
        # The second column, visible on a narrow screen.
        "holds": reason if holds is None else holds,
        "measured": entry["measured"],
        "95 % interval": shown,
        "needed": relation(entry),
    }


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
