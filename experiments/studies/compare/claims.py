"""What the sources say about the limits of their methods, and our own expectations."""

import math
from typing import Any

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
least | methods without correction are off by O(step)
    | distance at the safe step over that at half of it | >= 1.8 | full run
largest | methods without correction are off by O(step)
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
    found = []
    for problem in config.problems:
        table = {name: summary[problem]["methods"][METHODS[name].text] for name in config.methods}
        rounds = {name: entry["rounds"] or math.inf for name, entry in table.items()}
        least = min(number for name, number in rounds.items() if name != "prox_gd")
        numbers: dict[str, Any] = {"claimed": {}, "exact": {}}
        for name, entry in table.items():
            if METHODS[name].exact:
                kind = "claimed" if METHODS[name].claimed else "exact"
                numbers[kind][METHODS[name].text] = entry["limit"]
        # Tracking, momentum and smoothing are compared with their nearest relatives.
        if {"dual_tracking", "composite_fl"} <= table.keys():
            numbers["tracking"] = rounds["dual_tracking"] / rounds["composite_fl"]
        if problem == "own":
            halved = {n: e["limit"] / e["limit at half the step"] for n, e in table.items()}
            off = [ratio for name, ratio in halved.items() if METHODS[name].exact is False]
            numbers |= {"least": {"the least": off}, "largest": {"the largest": off}}
            numbers |= {"printed": table["fed_mid"]["limit"], "half": halved["fed_mid"]}
            dual, truth = table["fed_dual_avg"], summary["own"]["problem"]["nonzeros"]
            numbers["support"] = abs(dual["nonzeros"] - truth)
            numbers["central"] = least / rounds["prox_gd"]
            if "smoothed" in table:
                ratio = table["smoothed"]["last_distance"] / dual["last_distance"]
                numbers["smoothing"] = ratio
            if "skipping" in table:
                numbers["skips"] = table["skipping"]["limit"]
        if problem == "shared":
            numbers["saved"] = rounds["prox_gd"] / least
            if {"feedback", "fast_scaffold"} <= table.keys():
                numbers["momentum"] = rounds["feedback"] / rounds["fast_scaffold"]
        found += judged(STATEMENTS, numbers, _CASES[problem], quick=True)
    return found
