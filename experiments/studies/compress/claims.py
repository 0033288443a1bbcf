"""What the sources say about compressed uploads, and our own expectations."""

import math

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.studies.compress.rows import ALONE, METHODS, WHOLE
from experiments.study import Config

_TOP, _TIGHT = "top_k:0.1", 1e-6

STATEMENTS = """
Richtarik, Sokolov and Fatkhullin (NeurIPS 2021), introduction
alone | sparse uploads without error feedback converge to another point
    | relative distance with the largest tenth | >= 1e-2
Expected by us
ends | with feedback every codec{but} ends at the solution | largest distance | <= 1e-6
support | and at its support | least F1 | >= 1
rounds | the largest tenth needs at most three times the rounds | ratio | <= 3
times | the best codec sends fewer bytes | times fewer to 1e-6 | >= {fewer}
slow | {slow} is not there yet | distance | >= 1e-6
"""
_ON_A_NETWORK = """
Expected by us
errors | with feedback every codec ends as accurate as whole uploads, up to 0.1
    | largest difference of the error | < 0.1
times | the best codec sends fewer bytes | times fewer to an error of {near} | >= 10
"""


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
    known = {WHOLE, _TOP} <= set(config.codecs) and _TOP in config.alone
    if not known or _TIGHT not in config.tolerances:
        return []
    found, but = [], f" but {slow}" if slow else ""
    for case in (METHODS[method].text for method in config.methods):
        entries = {row["codec"]: row for row in summary["best"] if row["method"] == case}
        ends = {name: _number(entry["distance at the end"]) for name, entry in entries.items()}
        good = [name for name in entries if not name.endswith(ALONE) and name != slow]
        rounds = [_number(entries[name]["rounds to 1e-06"]) for name in (_TOP, WHOLE)]
        numbers = {
            "alone": ends[_TOP + ALONE],
            "ends": [ends[name] for name in good],
            "support": [entries[name]["F1 at the end"] for name in good],
            "rounds": rounds[0] / rounds[1],
            "times": max(entries[name]["times fewer to 1e-06"] or 0.0 for name in good),
            "slow": ends.get(slow),
        }
        found += judged(STATEMENTS.format(but=but, fewer=fewer, slow=slow), numbers, case)
    return found


def network(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims for each method on a network; none if the config lacks what they need."""
    if WHOLE not in config.codecs:
        return []
    found, near = [], f"{min(config.tolerances):g}"
    for method in config.methods:
        errors, times, case = {}, [], METHODS[method].text
        own = [row for row in summary["best"] if row["method"] == case]
        for row in (row for row in own if row["codec"] in config.codecs):
            curves = by_seed(select(rows, part="curve", method=method, codec=row["codec"]))
            errors[row["codec"]] = np.array([column(one, "error")[-1] for one in curves.values()])
            times.append(row[f"times fewer to {near}"] or 0.0)
        worst = max(errors.values(), key=np.mean)
        numbers = {"errors": worst - errors[WHOLE], "times": max(times)}
        found += judged(_ON_A_NETWORK.format(near=near), numbers, case)
    return found


def _number(value: float | None) -> float:
    return math.inf if value is None else value
