"""Every algorithm that takes a penalty, on a heterogeneous lasso, beside proximal gradient."""

import math
from typing import Any, Literal

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, select
from experiments.studies.compare.rows import METHODS, case, draw, ends, study, summarise
from experiments.study import Config, Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

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


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims on limits and rounds at tuned steps; none if the config lacks their methods."""
    if "own" not in config.problems or {"prox_gd", "fed_mid", "fed_dual_avg"} - set(config.methods):
        return []
    found = []
    for problem in config.problems:
        known = {name: ends(rows, problem, name) for name in config.methods}
        limit = {name: far["distance"] for name, (far, *_) in known.items()}
        rounds = {name: best["rounds"] or math.inf for name, (*_, best) in known.items()}
        least = min(number for name, number in rounds.items() if name != "prox_gd")
        numbers: dict[str, Any] = {
            kind: {METHODS[n].text: at for n, at in limit.items() if METHODS[n].limit == kind}
            for kind in ("claimed", "exact")
        }
        # Tracking, momentum and smoothing are compared with their nearest relatives.
        if {"dual_tracking", "composite_fl"} <= known.keys():
            numbers["tracking"] = rounds["dual_tracking"] / rounds["composite_fl"]
        if problem == "own":
            halved = {n: limit[n] / near["distance"] for n, (_, near, *_) in known.items()}
            off = [ratio for name, ratio in halved.items() if METHODS[name].limit == "biased"]
            numbers |= {"least": {"the least": off}, "largest": {"the largest": off}}
            numbers |= {"printed": limit["fed_mid"], "half": halved["fed_mid"]}
            [facts] = select(rows, part="problem", problem=problem)
            dual, *_, best = known["fed_dual_avg"]
            numbers["support"] = abs(dual["nonzeros"] - facts["nonzeros"])
            numbers["central"] = least / rounds["prox_gd"]
            if "smoothed" in known:
                smooth = known["smoothed"][-1]["last_distance"]
                numbers["smoothing"] = smooth / best["last_distance"]
            if "skipping" in known:
                numbers["skips"] = limit["skipping"]
        if problem == "shared":
            numbers["saved"] = rounds["prox_gd"] / least
            if {"feedback", "fast_scaffold"} <= known.keys():
                numbers["momentum"] = rounds["feedback"] / rounds["fast_scaffold"]
        found += judged(STATEMENTS, numbers, case(problem), quick=True)
    return found


EXPERIMENT = Study(
    title="All algorithms on heterogeneous lassos",
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=draw,
    printed=("exchanges; thousands of floats",),
    x64=True,
    keys={
        Literal["own", "shared", "own_groups", "shared_groups"]: "problems",
        Literal[*METHODS]: "methods",
        Count: "num_clients dim group_size limit_rounds own_limit_rounds.* *.num_examples "
        "*.num_rounds *.num_steps",
        CountOrZero: "seeds data_seed num_true",
        Positive: "tolerance tolerances limit_prox_step step_factors prox_factors server_lr "
        "*.spectrum[2]",
        NonNegative: "*.spread *.scale",
    },
)
