"""What the paper says about Figures 1 and 5."""

from typing import Any

import numpy as np

from experiments.report.claims import Claim, judged, mcnemar
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, best_right, best_scores, grid_scores
from experiments.study import Config

# "Comparable" is read as within two points, "somewhat less" as any difference.
STATEMENTS = """
Yuan, Zaheer and Reddi (ICML 2021), section 5.3, Figures 1 and 5
accuracy beyond centralized
    | FedDualAvg is comparable to centralised training | accuracy behind it | < 0.02
clear its local | FedDualAvg is clearly better than local training | more accurate by | > 0
clear its fed_avg_subgradient
    | FedDualAvg is clearly better than FedAvg with subgradients | more accurate by | > 0
objective over fed_avg_subgradient
    | FedAvg with subgradients has a worse objective | times FedDualAvg's | > 1
density over fed_mid fed_mid_osp
    | FedMiD and FedMiD-OSP are denser | density over FedDualAvg's | > 1
clear its fed_mid fed_mid_osp
    | FedMiD and FedMiD-OSP are somewhat less accurate | less accurate by | > 0
density over fed_dual_avg_osp
    | FedDualAvg-OSP is sparse | density over FedDualAvg's | < 1.5
accuracy behind fed_dual_avg_osp
    | FedDualAvg-OSP is far less accurate | less accurate by | > 0.02
Yuan, Zaheer and Reddi (ICML 2021), appendix B.4.2
near first fed_dual_avg | FedDualAvg is the most robust to the rates
    | lead in the share of the grid within 0.01 of the best accuracy of all methods | > 0
Expected by us
other | FedDualAvg is the most robust to the rates, by other measures | lead | > 0
"""
# FedDualAvg, the methods that the source compares with it over all rates, and its baselines.
_OVER_ALL = ("fed_dual_avg", "fed_dual_avg_osp", "fed_mid", "fed_mid_osp", "fed_avg_subgradient")
_ORDER = (*_OVER_ALL, "centralized", "local")


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims at the best rates, paired over the seeds, and over all rates.

    The source's figure has one scale for all methods, so rates count as good near the best accuracy
    of all. The claims near each method's own best accuracy, which favours methods whose best is
    low, and on the mean over the grid are our expectations.
    """
    known = summary["algorithms"]
    entries = {name: known[name] for name in _ORDER if name in known}
    if _ORDER[0] not in entries or config.get("penalty", "l1") != "l1":
        return []
    judge = Criterion("accuracy", "max", config.criterion_rounds)
    numbers: dict[str, Any] = {
        measure: {
            name: best_scores(rows, name, entry, judge._replace(measure=measure))
            for name, entry in entries.items()
        }
        for measure in ("accuracy", "density", "objective")
    }
    # A clear lead in accuracy holds over the scans as well as over the seeds.
    right = [best_right(rows, name, entry) for name, entry in entries.items()]
    accuracy, numbers["clear"] = numbers["accuracy"], {}
    for name, own in zip(entries, right, strict=True):
        chance = mcnemar(right[0], own) if right[0] is not None and own is not None else None
        numbers["clear"][name] = accuracy[_ORDER[0]] - accuracy[name], {"examples": chance}
    # A failed run counts as a random classifier.
    tables = {
        name: np.maximum(grid_scores(rows, name, entries[name], judge), 0.5)
        for name in _OVER_ALL
        if name in entries
    }
    if len(tables) > 1:
        best = np.max([table.max(axis=0) for table in tables.values()], axis=0)
        near, own, mean = (
            {name: np.mean(good(table), axis=0) for name, table in tables.items()}
            for good in (
                lambda table: table >= best - 0.01,
                lambda table: table >= 0.99 * table.max(axis=0),
                lambda table: table,
            )
        )
        numbers["near"], numbers["other"] = near, {}
        for part, (ours, *others) in (
            ("share within one per cent of its own best accuracy", own.values()),
            ("mean accuracy over the grid", mean.values()),
        ):
            numbers["other"][part] = ours - np.max(others, axis=0)
    return judged(STATEMENTS, numbers)
