"""What is known about these methods."""

import math

from experiments.report.claims import Claim
from experiments.studies.compare.methods import METHODS

_EXACT = ("prox_gd", "fed_pd", "fed_pd_gd", "fed_dyn", "fed_dyn_half")
_CENTRAL = {"prox_gd", "fed_mid", "fed_dual_avg", "fed_pd"}
_NEAR = ("subgradient", "fed_mid_client", "fed_mid_osp", "fed_dual_avg")


def claims(config, rows, summary):
    """What is known about these methods; empty if the config leaves out one that is needed."""
    if "own" not in config.problems or _CENTRAL - set(config.methods):
        return []
    own = summary["own"]["methods"]

    def entries(names):
        return [own[METHODS[name].text] for name in names if name in config.methods]

    def rounds(problem):
        found = {name: e["rounds"] or math.inf for name, e in summary[problem]["methods"].items()}
        return found.pop(METHODS["prox_gd"].text), min(found.values())

    ratios = [entry["limit"] / entry["limit at half the step"] for entry in entries(_NEAR)]
    [printed], [dual] = entries(("fed_mid",)), entries(("fed_dual_avg",))
    unhelped = printed["limit"] / printed["limit at half the step"]
    central, best = rounds("own")
    found = [
        Claim(
            "ProxGD, FedPD and FedDyn are exact, sampled too (largest relative distance)",
            max(entry["limit"] for entry in entries(_EXACT)), 1e-10, False,
        ),
        Claim("FedMiD as printed solves another problem (distance)", printed["limit"], 0.1),
        Claim("and half the step does not help it (ratio)", unhelped, 1.2, False),
        Claim("the others with local steps are off by O(step) (least ratio)", min(ratios), 1.6),
        Claim("and by no more than that (largest ratio)", max(ratios), 2.4, False),
        Claim(
            "FedDualAvg's support has the right size, but for one (difference)",
            abs(dual["nonzeros"] - summary["own"]["problem"]["nonzeros"]), 1, False,
        ),
        Claim("own Hessians: nothing needs fewer rounds than ProxGD (ratio)", best / central, 1),
    ]  # fmt: skip
    if "shared" in config.problems:
        central, best = rounds("shared")
        found.append(Claim("shared Hessians: local steps save rounds (ratio)", central / best, 2.0))
    return found + [
        Claim("FedPD that skips stalls (distance)", entry["limit"], 1e-2)
        for entry in entries(("skipping",))
    ]
