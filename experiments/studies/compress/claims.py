"""What the sources and we expect of compressed uploads."""

import math

from experiments.report.claims import Claim
from experiments.report.rows import Row, Summary
from experiments.studies.compress.rows import ALONE, METHODS, WHOLE
from experiments.study import Config

_TOP, _TIGHT = "top_k:0.1", 1e-6


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims for each method; none if the config lacks what they need."""
    if not {WHOLE, _TOP} <= set(config.uplinks) or _TOP not in config.alone:
        return []
    if _TIGHT not in config.tolerances:
        return []
    found = []
    for method in config.methods:
        text = METHODS[method].text
        entries = {row["uplink"]: row for row in summary["best"] if row["method"] == text}
        with_feedback = [entry for name, entry in entries.items() if not name.endswith(ALONE)]
        ends = [_number(entry["distance at the end"]) for entry in with_feedback]
        fewer = [entry["times fewer to 1e-06"] or 0.0 for entry in with_feedback]
        rounds = [_number(entries[name]["rounds to 1e-06"]) for name in (_TOP, WHOLE)]
        found += [
            Claim(
                f"{text}: the largest tenth without feedback ends elsewhere (relative distance)",
                _number(entries[_TOP + ALONE]["distance at the end"]), 1e-2, quick=False,
            ),
            _expected(
                f"{text}: with feedback every uplink ends at the solution (largest distance)",
                max(ends), _TIGHT, False,
            ),
            _expected(
                f"{text}: and at its support (least F1)",
                min(entry["F1 at the end"] for entry in with_feedback), 1.0,
            ),
            _expected(
                f"{text}: the largest tenth needs at most three times the rounds (ratio)",
                rounds[0] / rounds[1], 3.0, False,
            ),
            _expected(
                f"{text}: the best uplink sends fewer bytes to 1e-6 (ratio)", max(fewer), 5.0
            ),
        ]  # fmt: skip
    return found


def _expected(*given) -> Claim:
    return Claim(*given, source=False, quick=False)


def _number(value: float | None) -> float:
    return math.inf if value is None else value
