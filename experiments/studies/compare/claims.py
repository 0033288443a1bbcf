"""Claims of the sources about the limits of their methods, and our own expectations."""

import math
from typing import Any

from experiments.report.claims import Claim
from experiments.report.rows import Row, Summary
from experiments.studies.compare.methods import METHODS, Method
from experiments.studies.compare.problem import methods_for
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims on limits and rounds at tuned steps; none if the config lacks their methods."""
    if "own" not in config.problems or {"prox_gd", "fed_mid", "fed_dual_avg"} - set(config.methods):
        return []
    own = summary["own"]["methods"]
    found = [
        Claim(
            f"{_NAMES[problem]}: {method.text} is exact (relative distance)",
            entry["limit"],
            1e-10,
            False,
            source=method.claimed,
        )
        for problem in config.problems
        for method, entry in _entries(config, problem, summary, True)
    ]
    off = [
        e["limit"] / e["limit at half the step"] for _, e in _entries(config, "own", summary, False)
    ]
    printed, dual = (own[METHODS[name].text] for name in ("fed_mid", "fed_dual_avg"))
    found += [
        *(
            _full_run(*given)._replace(source=False)
            for given in (
                ("the methods without correction are off by O(step) (least ratio)", min(off), 1.8),
                ("and by no more than that (largest ratio)", max(off), 2.1, False),
            )
        ),
        _expected("FedMiD as printed solves another problem (distance)", printed["limit"], 0.1),
        _expected(
            "and half the step does not help it (ratio)",
            printed["limit"] / printed["limit at half the step"],
            1.2,
            False,
        ),
        _expected(
            "FedDualAvg's support has the right size, but for one (difference)",
            abs(dual["nonzeros"] - summary["own"]["problem"]["nonzeros"]),
            1,
            False,
        ),
    ]
    central, best = _rounds(summary, "own")
    found += _of_tracking(config, summary)
    text = "own Hessians: nothing needs fewer exchanges than ProxGD (ratio)"
    found.append(_full_run(text, best / central, 1)._replace(source=False))
    if "shared" in config.problems:
        central, best = _rounds(summary, "shared")
        found.append(
            _full_run("shared Hessians: local steps save exchanges (ratio)", central / best, 2.0)
        )
    if "skipping" in config.methods:
        limit = own[METHODS["skipping"].text]["limit"]
        found.append(_expected("FedPD that skips stalls (distance)", limit, 1e-2))
    return found


_NAMES = {
    "own": "own Hessians",
    "shared": "shared Hessians",
    "own_groups": "own Hessians, groups",
    "shared_groups": "shared Hessians, groups",
}


def _of_tracking(config: Config, summary: Summary) -> list[Claim]:
    """Return claims that compare tracking, momentum and smoothing with their nearest relatives."""
    found = []

    def compare(text, problem, name, other, what, needed, at_least=True):
        if {name, other} <= set(config.methods) and problem in config.problems:
            table = summary[problem]["methods"]
            first, second = (table[METHODS[key].text][what] or math.inf for key in (name, other))
            text = f"{_NAMES[problem]}: {text} (ratio)"
            found.append(_full_run(text, first / second, needed, at_least)._replace(source=False))

    for problem in _NAMES:
        compare(
            "tracking needs hardly more exchanges than Composite FL",
            problem,
            "dual_tracking",
            "composite_fl",
            "rounds",
            1.25,
            False,
        )
    compare("momentum saves exchanges", "shared", "feedback", "fast_scaffold", "rounds", 1.5)
    compare(
        "smoothing ends no nearer than dual averaging at equal tuning budgets",
        "own",
        "smoothed",
        "fed_dual_avg",
        "last_distance",
        1.0,
    )
    return found


def _full_run(*given) -> Claim:
    """Return a claim over all methods and rates, of which a quick run has few."""
    return Claim(*given, quick=False)


def _expected(*given) -> Claim:
    return Claim(*given, source=False)


def _entries(
    config: Config, problem: str, summary: Summary, exact: bool
) -> list[tuple[Method, Any]]:
    table = summary[problem]["methods"]
    chosen = (METHODS[name] for name in methods_for(config, problem))
    return [(method, table[method.text]) for method in chosen if method.exact is exact]


def _rounds(summary: Summary, problem: str) -> tuple[float, float]:
    found = {name: e["rounds"] or math.inf for name, e in summary[problem]["methods"].items()}
    return found.pop(METHODS["prox_gd"].text), min(found.values())
