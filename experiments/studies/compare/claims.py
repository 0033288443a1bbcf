"""Claims of the sources about the limits of their methods, and our own expectations."""

import math
from typing import Any

from experiments.report.claims import Claim
from experiments.report.rows import Row, Summary
from experiments.studies.compare.methods import METHODS, Method
from experiments.study import Config

_PAPERS = "the papers of the methods, convergence theorems"
_CASES = {
    "own": "own Hessians",
    "shared": "shared Hessians",
    "own_groups": "own Hessians, groups",
    "shared_groups": "shared Hessians, groups",
}


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims on limits and rounds at tuned steps; none if the config lacks their methods."""
    if "own" not in config.problems or {"prox_gd", "fed_mid", "fed_dual_avg"} - set(config.methods):
        return []
    own = summary["own"]["methods"]
    found = [
        Claim(
            "corrected and primal-dual methods converge to the solution"
            if method.claimed
            else "so do corrected methods without such a theorem, or on half of the clients",
            entry["limit"],
            1e-10,
            False,
            source=_PAPERS if method.claimed else "",
            measure="relative distance",
            case=_CASES[problem],
            part=method.text,
        )
        for problem in config.problems
        for method, entry in _entries(config, problem, summary, True)
    ]
    off = [
        e["limit"] / e["limit at half the step"] for _, e in _entries(config, "own", summary, False)
    ]
    printed, dual = (own[METHODS[name].text] for name in ("fed_mid", "fed_dual_avg"))
    found += [
        # Claims over all methods and rates, of which a quick run has few.
        *(
            Claim(
                "methods without correction are off by O(step)",
                ratio,
                needed,
                at_least,
                measure="distance at the safe step over that at half of it",
                case=_CASES["own"],
                part=part,
                quick=False,
            )
            for part, ratio, needed, at_least in (
                ("the least", min(off), 1.8, True),
                ("the largest", max(off), 2.1, False),
            )
        ),
        Claim(
            "FedMiD as printed solves another problem",
            printed["limit"],
            0.1,
            measure="relative distance",
            case=_CASES["own"],
        ),
        Claim(
            "and half the step does not help it",
            printed["limit"] / printed["limit at half the step"],
            1.2,
            False,
            measure="distance at the safe step over that at half of it",
            case=_CASES["own"],
        ),
        Claim(
            "FedDualAvg's support has the right size, but for one",
            abs(dual["nonzeros"] - summary["own"]["problem"]["nonzeros"]),
            1,
            False,
            measure="difference",
            case=_CASES["own"],
        ),
    ]
    found += _of_relatives(config, summary)
    central, best = _rounds(summary, "own")
    found.append(
        Claim(
            "nothing needs fewer exchanges than ProxGD",
            best / central,
            1,
            measure="least exchanges over ProxGD's",
            case=_CASES["own"],
            quick=False,
        )
    )
    if "shared" in config.problems:
        central, best = _rounds(summary, "shared")
        found.append(
            Claim(
                "if the clients have the same Hessian, local steps save exchanges",
                central / best,
                2.0,
                source=_PAPERS,
                measure="ProxGD's exchanges over the least",
                case=_CASES["shared"],
                quick=False,
            )
        )
    if "skipping" in config.methods:
        limit = own[METHODS["skipping"].text]["limit"]
        text = "FedPD that skips stalls"
        measure = "relative distance"
        found.append(Claim(text, limit, 1e-2, measure=measure, case=_CASES["own"]))
    return found


def _of_relatives(config: Config, summary: Summary) -> list[Claim]:
    """Return claims that compare tracking, momentum and smoothing with their nearest relatives."""
    found = []

    def compare(text, problem, name, other, what, needed, at_least=True):
        if {name, other} <= set(config.methods) and problem in config.problems:
            table = summary[problem]["methods"]
            first, second = (table[METHODS[key].text][what] or math.inf for key in (name, other))
            labels = {"measure": "ratio", "case": _CASES[problem], "quick": False}
            found.append(Claim(text, first / second, needed, at_least)._replace(**labels))

    text = "tracking needs hardly more exchanges than Composite FL"
    for problem in _CASES:
        compare(text, problem, "dual_tracking", "composite_fl", "rounds", 1.25, False)
    compare("momentum saves exchanges", "shared", "feedback", "fast_scaffold", "rounds", 1.5)
    text = "smoothing ends no nearer than dual averaging at equal tuning budgets"
    compare(text, "own", "smoothed", "fed_dual_avg", "last_distance", 1.0)
    return found


def _entries(
    config: Config, problem: str, summary: Summary, exact: bool
) -> list[tuple[Method, Any]]:
    table = summary[problem]["methods"]
    chosen = (METHODS[name] for name in config.methods)
    return [(method, table[method.text]) for method in chosen if method.exact is exact]


def _rounds(summary: Summary, problem: str) -> tuple[float, float]:
    found = {name: e["rounds"] or math.inf for name, e in summary[problem]["methods"].items()}
    return found.pop(METHODS["prox_gd"].text), min(found.values())
