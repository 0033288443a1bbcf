"""What the sources say about the limits of their methods, and our own expectations."""

import math
from collections import defaultdict

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary
from experiments.studies.compare.methods import METHODS
from experiments.study import Config

STATEMENTS = """
the papers of the methods, convergence theorems
claimed | corrected and primal-dual methods converge to the solution
    | relative distance | <= 1e-10
saved | if the clients have the same Hessian, local steps save exchanges
    | ProxGD's exchanges over the least | >= 2 | full run
Expected by us
exact | so do corrected methods without such a theorem, or on half of the clients
    | relative distance | <= 1e-10
off least | methods without correction are off by O(step)
    | distance at the safe step over that at half of it | >= 1.8 | full run
off largest | methods without correction are off by O(step)
    | distance at the safe step over that at half of it | <= 2.1 | full run
printed | FedMiD as printed solves another problem | relative distance | >= 0.1
half | and half the step does not help it
    | distance at the safe step over that at half of it | <= 1.2
support | FedDualAvg's support has the right size, but for one | difference | <= 1
tracking | tracking needs hardly more exchanges than Composite FL | ratio | <= 1.25 | full run
momentum | momentum saves exchanges | ratio | >= 1.5 | full run
smoothing | smoothing ends no nearer than dual averaging at equal tuning budgets
    | ratio | >= 1 | full run
central | nothing needs fewer exchanges than ProxGD
    | least exchanges over ProxGD's | >= 1 | full run
skips | FedPD that skips stalls | relative distance | >= 1e-2
"""
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
    numbers: dict[str, dict] = defaultdict(dict)
    ends = {
        problem: {name: summary[problem]["methods"][METHODS[name].text] for name in config.methods}
        for problem in config.problems
    }
    for problem, table in ends.items():
        for name, entry in table.items():
            if METHODS[name].exact:
                kind = "claimed" if METHODS[name].claimed else "exact"
                numbers[kind][_CASES[problem], METHODS[name].text] = entry["limit"]
    own, here = ends["own"], (_CASES["own"], "")
    halved = {name: e["limit"] / e["limit at half the step"] for name, e in own.items()}
    off = [ratio for name, ratio in halved.items() if METHODS[name].exact is False]
    numbers["off least"][here[0], "the least"] = off
    numbers["off largest"][here[0], "the largest"] = off
    numbers["printed"][here], numbers["half"][here] = own["fed_mid"]["limit"], halved["fed_mid"]
    truth = summary["own"]["problem"]["nonzeros"]
    numbers["support"][here] = abs(own["fed_dual_avg"]["nonzeros"] - truth)
    numbers["skips"][here] = own["skipping"]["limit"] if "skipping" in own else None
    for problem, table in ends.items():
        case = _CASES[problem], ""
        rounds = {name: entry["rounds"] or math.inf for name, entry in table.items()}
        # Tracking, momentum and smoothing are compared with their nearest relatives.
        if {"dual_tracking", "composite_fl"} <= table.keys():
            numbers["tracking"][case] = rounds["dual_tracking"] / rounds["composite_fl"]
        central = rounds.pop("prox_gd")
        if problem == "own":
            numbers["central"][case] = min(rounds.values()) / central
            if "smoothed" in table:
                ratio = table["smoothed"]["last_distance"] / own["fed_dual_avg"]["last_distance"]
                numbers["smoothing"][case] = ratio
        elif problem == "shared":
            numbers["saved"][case] = central / min(rounds.values())
            if {"feedback", "fast_scaffold"} <= table.keys():
                numbers["momentum"][case] = rounds["feedback"] / rounds["fast_scaffold"]
    return judged(STATEMENTS, numbers, quick=True)
