"""What the paper says about Figures 1 and 5."""

import numpy as np

from experiments.report.claims import Claim, judged, mcnemar
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, best_right, best_scores, grid_scores
from experiments.study import Config

_OURS, _OSP, _SUBGRADIENT = "fed_dual_avg", "fed_dual_avg_osp", "fed_avg_subgradient"
# The methods that the source compares with FedDualAvg over all rates.
_RIVALS = (_OSP, "fed_mid", "fed_mid_osp", _SUBGRADIENT)

# "Comparable" is read as within two points, "somewhat less" as any difference.
STATEMENTS = """
Yuan, Zaheer and Reddi (ICML 2021), section 5.3, Figures 1 and 5
behind centralized | FedDualAvg is comparable to centralised training | accuracy behind it | < 0.02
local | FedDualAvg is clearly better than local training | more accurate by | > 0
subgradient | FedDualAvg is clearly better than FedAvg with subgradients | more accurate by | > 0
worse | FedAvg with subgradients has a worse objective | times FedDualAvg's | > 1
denser | FedMiD and FedMiD-OSP are denser | density over FedDualAvg's | > 1
primal | FedMiD and FedMiD-OSP are somewhat less accurate | less accurate by | > 0
osp density | FedDualAvg-OSP is sparse | density over FedDualAvg's | < 1.5
osp | FedDualAvg-OSP is far less accurate | less accurate by | > 0.02
Yuan, Zaheer and Reddi (ICML 2021), appendix B.4.2
near | FedDualAvg is the most robust to the rates
    | lead in the share of the grid within 0.01 of the best accuracy of all methods | > 0
Expected by us
other | FedDualAvg is the most robust to the rates, by other measures | lead | > 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims at the best rates, paired over the seeds, and over all rates.

    The source's figure has one scale for all methods, so rates count as good near the best accuracy
    of all. The claims near each method's own best accuracy, which favours methods whose best is
    low, and on the mean over the grid are our expectations.
    """
    known = (_OURS, *_RIVALS, "centralized", "local")
    entries = {name: e for name, e in summary["algorithms"].items() if name in known}
    if _OURS not in entries or config.get("penalty", "l1") != "l1":
        return []
    judge = Criterion("accuracy", "max", config.criterion_rounds)
    accuracy, density, objective = (
        {
            name: best_scores(rows, name, entry, judge._replace(measure=measure))
            for name, entry in entries.items()
        }
        for measure in ("accuracy", "density", "objective")
    )
    leads = {name: accuracy[_OURS] - own for name, own in accuracy.items()}
    denser = {name: own / density[_OURS] for name, own in density.items()}

    def lead(name):
        """Return a lead in accuracy, which must hold over the scans as well as over the seeds."""
        if name not in leads:
            return None
        one, other = (best_right(rows, label, entries[label]) for label in (_OURS, name))
        chance = None if one is None or other is None else mcnemar(one, other)
        return leads[name], {"examples": chance}

    primal = [name for name in ("fed_mid", "fed_mid_osp") if name in entries]
    numbers = {
        "behind centralized": -leads["centralized"] if "centralized" in leads else None,
        "local": lead("local"),
        "subgradient": lead(_SUBGRADIENT),
        "worse": objective[_SUBGRADIENT] / objective[_OURS] if _SUBGRADIENT in entries else None,
        "denser": {name: denser[name] for name in primal},
        "primal": {name: lead(name) for name in primal},
        "osp density": denser.get(_OSP),
        "osp": leads.get(_OSP),
    }
    # A failed run counts as a random classifier.
    tables = {
        name: np.maximum(grid_scores(rows, name, entries[name], judge), 0.5)
        for name in (_OURS, *_RIVALS)
        if name in entries
    }
    best = np.max([table.max(axis=0) for table in tables.values()], axis=0)

    def ahead(good):
        means = {name: np.mean(good(table), axis=0) for name, table in tables.items()}
        first = means.pop(_OURS)
        return first - np.max(list(means.values()), axis=0) if means else None

    numbers["near"] = ahead(lambda table: table >= best - 0.01)
    numbers["other"] = {
        "share within one per cent of its own best accuracy": ahead(
            lambda table: table >= 0.99 * table.max(axis=0)
        ),
        "mean accuracy over the grid": ahead(lambda table: table),
    }
    return judged(STATEMENTS, numbers)
