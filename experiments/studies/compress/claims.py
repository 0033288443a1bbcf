"""Claims on compressed uploads, by the sources and our own."""

import math

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.studies.compress.rows import ALONE, METHODS, WHOLE
from experiments.study import Config

_TOP, _TIGHT = "top_k:0.1", 1e-6


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
                f"{text}: the largest tenth without feedback ends elsewhere (relative distance)",
                _number(entries[_TOP + ALONE]["distance at the end"]),
                1e-2,
                quick=False,
            ),
            _expected(
                f"{text}: with feedback every codec{but} ends at the solution (largest distance)",
                max(ends),
                _TIGHT,
                False,
            ),
            _expected(
                f"{text}: and at its support (least F1)",
                min(entry["F1 at the end"] for entry in with_feedback),
                1.0,
            ),
            _expected(
                f"{text}: the largest tenth needs at most three times the rounds (ratio)",
                rounds[0] / rounds[1],
                3.0,
                False,
            ),
            _expected(
                f"{text}: the best codec sends fewer bytes to 1e-6 (ratio)", max(times), fewer
            ),
        ]
        if slow in entries:
            end = _number(entries[slow]["distance at the end"])
            found.append(_expected(f"{text}: {slow} is not there yet (distance)", end, _TIGHT))
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
                f"{text}: with feedback every codec ends as accurate as whole uploads, up to 0.1 "
                "(largest difference of the error)",
                errors[worst] - errors[WHOLE],
                0.1,
                False,
                source=False,
            ),
            _expected(
                f"{text}: the best codec sends fewer bytes to an error of {near} (ratio)",
                fewer,
                10.0,
            ),
        ]
    return found


def _expected(*given) -> Claim:
    return Claim(*given, source=False, quick=False)


def _number(value: float | None) -> float:
    return math.inf if value is None else value
