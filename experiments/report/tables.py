"""A summary in words and tables, for the terminal, the page and Markdown."""

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from experiments.report.claims import NEEDS_THE_FULL_RUN, NOT_DECIDED, over_seeds
from experiments.report.names import without_math, words
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.report.statements import lines, statements
from experiments.report.summary import Criterion, edges
from experiments.report.verdict import LEGEND

_TIED = 5e-4  # scores with at most this relative difference have the same three digits


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
        found += [*_leader(entries), _divergence(entries)]
    if brief and entries:
        return found[0]
    # A quick run leaves the claims of the source open, and its command says so.
    claims = [claim for claim in summary.get("claims", []) if claim["source"]]
    if any(claim.get("open") != NEEDS_THE_FULL_RUN for claim in claims):
        found.append(_counted(claims))
    return " ".join(filter(None, found))


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
    if criterion.reach is not None:
        tied.sort(key=lambda name: (np.mean(_reached(entries[name])), _above(entries[name])))
    else:
        tied.sort(key=lambda name: entries[name]["last"].get("density", math.inf))
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
    if len(tied) > 1 and criterion.reach is not None:
        first, second = (_reached(entries[name]) for name in tied[:2])
        yield _race(names[0], names[1], first, second, criterion.reach)
    elif len(tied) > 1:
        shares = [entries[name]["last"].get("density", math.inf) for name in tied[:2]]
        if shares[0] < shares[1]:
            yield f"Of these {names[0]} is the sparsest, with density {short(shares[0])}."
    last, above = entries[tied[0]]["last"], _above(entries[tied[0]])
    if math.isfinite(above):
        least = abs(last["objective"] - above)
        share = f" {short(above)}, {100 * above / least:.2g} %," if above > 1e-5 * least else ""
        where = "above" if share else "at"
        yield f"The objective of {names[0]} ends{share} {where} the optimum."
    held = [f"{words(name)} {short(last[name])}" for name in HELD_OUT if name in last]
    if held and criterion.measure not in HELD_OUT:
        yield f"On held-out rows {names[0]} has {' and '.join(held)}."


HELD_OUT = ("validation_loss", "accuracy", "r2")  # measures on held-out rows


def _above(entry: dict[str, Any]) -> float:
    """Return how far the last objective is above the optimum; infinity if that is not known."""
    return entry["last"].get("suboptimality", math.inf)


def _reached(entry: dict[str, Any]) -> np.ndarray:
    """Return the first round of each seed that reaches the target; infinity if none does."""
    found = np.array(entry.get("reached") or [None], float)
    return np.where(np.isnan(found), np.inf, found)


def _race(name: str, other: str, first: np.ndarray, second: np.ndarray, target: float) -> str:
    """Return which of two methods with equal scores reaches the target earlier, and how surely."""
    if not np.isfinite([*first, *second]).all():
        return f"Not every seed reaches {target:g}."
    lead = over_seeds("", second - first, 0.0)
    if (first == second).all():
        return f"Both reach {target:g} in round {first.mean():.4g}."
    told = f"{name} reaches {target:g} first, in round {first.mean():.4g}, and {other} "
    told += f"{lead.measured:.4g} rounds later"
    if lead.interval is None or len(first) < 2:
        return f"{told}, with one seed."
    low, high = lead.interval
    certain = "" if low > 0 else ", which decides nothing"
    return f"{told} (95 % interval {low:.3g} to {high:.3g}{certain})."


def _divergence(entries: dict[str, Any]) -> str:
    """Return how many runs diverged, and from which value of a hyperparameter on."""
    runs, diverged = _runs(entries)
    if not diverged:
        return ""
    tried, gone = Counter(), Counter()
    for entry in entries.values():
        for field, values in entry.get("grid", {}).items():
            for value in values if len(values) > 1 else ():
                tried[field, value] += entry["points"] * entry["seeds"] // len(values)
                gone[field, value] += sum(run.get(field) == value for run in entry["diverged"])
    where = ""
    if tried:
        # The largest share, and of equal ones the smallest value.
        field, value = min(tried, key=lambda place: (-gone[place] / tried[place], place[1]))
        above = [place for place in tried if place[0] == field and place[1] >= value]
        same, of = sum(gone[place] for place in above), sum(tried[place] for place in above)
        many = "all" if same == of else f"{same:,} of"
        where = f"; with a {words(field)} of {value:g} or more {many} {of:,} did"
    return f"Of {runs:,} runs {diverged:,} diverged{where}."


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


def remarks_on_points(summary: Summary) -> list[str]:
    """Explain the stars, short names and verdicts of the best points."""
    entries = summary.get("algorithms", {})
    found = [EDGE] if any(entry.get("edges") for entry in entries.values()) else []
    if any(style(name)[0].endswith("-OSP") for name in entries):
        found.append("OSP: only the server takes prox steps.")
    verdicts = {entry["verdict"].split(":")[0].split(" ")[0] for entry in entries.values()}
    told = [f"{name} is {meaning}" for name, meaning in LEGEND.items() if name in verdicts]
    return [*found, f"Verdicts on the objective: {'; '.join(told)}."] if told else found


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
