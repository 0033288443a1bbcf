"""What the sources say about compressed uploads, and our own expectations."""

import math
from collections import defaultdict

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
    numbers: dict[str, dict] = defaultdict(dict)
    for case, entries in _by_method(config, summary):
        ends = {name: _number(entry["distance at the end"]) for name, entry in entries.items()}
        rounds = {name: _number(entry["rounds to 1e-06"]) for name, entry in entries.items()}
        good = [name for name in entries if not name.endswith(ALONE) and name != slow]
        numbers["alone"][case] = ends[_TOP + ALONE]
        numbers["ends"][case] = [ends[name] for name in good]
        numbers["support"][case] = [entries[name]["F1 at the end"] for name in good]
        numbers["rounds"][case] = rounds[_TOP] / rounds[WHOLE]
        numbers["times"][case] = max(entries[name]["times fewer to 1e-06"] or 0.0 for name in good)
        numbers["slow"][case] = ends.get(slow)
    but = f" but {slow}" if slow else ""
    return judged(STATEMENTS.format(but=but, fewer=fewer, slow=slow), numbers)


def network(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims for each method on a network; none if the config lacks what they need."""
    if WHOLE not in config.codecs:
        return []
    numbers: dict[str, dict] = defaultdict(dict)
    near = f"{min(config.tolerances):g}"
    for method, (case, entries) in zip(config.methods, _by_method(config, summary), strict=True):
        errors = {}
        for name in config.codecs:
            curves = by_seed(select(rows, part="curve", method=method, codec=name)).values()
            errors[name] = np.array([column(curve, "error")[-1] for curve in curves])
        worst = max(errors.values(), key=np.mean)
        numbers["errors"][case] = worst - errors[WHOLE]
        times = (entries[name][f"times fewer to {near}"] or 0.0 for name in config.codecs)
        numbers["times"][case] = max(times)
    return judged(_ON_A_NETWORK.format(near=near), numbers)


def _by_method(config: Config, summary: Summary):
    """Yield the case of each method, and its entries by codec."""
    for text in (METHODS[method].text for method in config.methods):
        yield (text, ""), {row["codec"]: row for row in summary["best"] if row["method"] == text}


def _number(value: float | None) -> float:
    return math.inf if value is None else value
