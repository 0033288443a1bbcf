"""Claims on compressed uploads, by the sources and our own."""

import math

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.studies.compress.rows import ALONE, METHODS, WHOLE
from experiments.study import Config

_TOP, _TIGHT = "top_k:0.1", 1e-6
_PAPERS = "Richtarik, Sokolov and Fatkhullin (NeurIPS 2021), introduction"


def exact(
    slow: str, fewer: float, config: Config, rows: list[Row], summary: Summary
) -> list[Claim]:
    """Return claims for each method on a convex problem; none if the config lacks their codecs.

    Args:
      slow: a codec that is not expected to reach the solution; empty for none.
      fewer: the factor by which the best codec should send fewer bytes.
      config: its ``codecs`` decide which claims are made.
      rows: not used.
      summary: the best points.
    """
    if not {WHOLE, _TOP} <= set(config.codecs) or _TOP not in config.alone:
        return []
    if _TIGHT not in config.tolerances:
        return []
    found, but = [], f" but {slow}" if slow else ""
    for method in config.methods:
        text = METHODS[method].text
        entries = {row["codec"]: row for row in summary["best"] if row["method"] == text}
        with_feedback = [
            entry for name, entry in entries.items() if not name.endswith(ALONE) and name != slow
        ]
        ends = [_number(entry["distance at the end"]) for entry in with_feedback]
        times = [entry["times fewer to 1e-06"] or 0.0 for entry in with_feedback]
        rounds = [_number(entries[name]["rounds to 1e-06"]) for name in (_TOP, WHOLE)]
        found += [
            Claim(
                "sparse uploads without error feedback converge to another point",
                _number(entries[_TOP + ALONE]["distance at the end"]),
                1e-2,
                source=_PAPERS,
                measure="relative distance with the largest tenth",
                case=text,
                quick=False,
            ),
            _expected(
                f"with feedback every codec{but} ends at the solution",
                max(ends),
                _TIGHT,
                False,
                measure="largest distance",
                case=text,
            ),
            _expected(
                "and at its support",
                min(entry["F1 at the end"] for entry in with_feedback),
                1.0,
                measure="least F1",
                case=text,
            ),
            _expected(
                "the largest tenth needs at most three times the rounds",
                rounds[0] / rounds[1],
                3.0,
                False,
                measure="ratio",
                case=text,
            ),
            _expected(
                "the best codec sends fewer bytes",
                max(times),
                fewer,
                measure="times fewer to 1e-6",
                case=text,
            ),
        ]
        if slow in entries:
            end = _number(entries[slow]["distance at the end"])
            claim = _expected(f"{slow} is not there yet", end, _TIGHT, measure="distance")
            found.append(claim._replace(case=text))
    return found


def network(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims for each method on a network; none if the config lacks what they need."""
    if WHOLE not in config.codecs:
        return []
    found = []
    for method in config.methods:
        text = METHODS[method].text
        entries = {row["codec"]: row for row in summary["best"] if row["method"] == text}
        errors = {
            name: np.array(
                [
                    column(one, "error")[-1]
                    for one in by_seed(
                        select(rows, part="curve", method=method, codec=name)
                    ).values()
                ]
            )
            for name in config.codecs
        }
        worst = max(config.codecs, key=lambda name: errors[name].mean())
        near = f"{min(config.tolerances):g}"
        fewer = max(entries[name][f"times fewer to {near}"] or 0.0 for name in config.codecs)
        found += [
            over_seeds(
                "with feedback every codec ends as accurate as whole uploads, up to 0.1",
                errors[worst] - errors[WHOLE],
                0.1,
                False,
                measure="largest difference of the error",
                case=text,
            ),
            _expected(
                "the best codec sends fewer bytes",
                fewer,
                10.0,
                measure=f"times fewer to an error of {near}",
                case=text,
            ),
        ]
    return found


def _expected(*given, **named) -> Claim:
    return Claim(*given, **named, quick=False)


def _number(value: float | None) -> float:
    return math.inf if value is None else value
