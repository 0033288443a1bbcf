"""Claims of the paper about Figures 1 and 5."""

from typing import Any

import numpy as np

from experiments.report.claims import Claim, mcnemar, over_seeds
from experiments.report.plots import style
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, best_right, best_scores, grid_scores
from experiments.study import Config

# "Comparable" is read as within two points, "somewhat less" as any difference.
_COMPARABLE = 0.02
_GOOD = 0.99  # rates are good above this share of the method's best accuracy
_NEAR = 0.01  # rates are good within this distance of the best accuracy of all methods
# The methods that the source compares with FedDualAvg over all rates.
_RIVALS = ("fed_dual_avg_osp", "fed_mid", "fed_mid_osp", "fed_avg_subgradient")
_BASELINES = ("centralized", "local")
_PAPER = "Yuan, Zaheer and Reddi (ICML 2021), section 5.3, Figures 1 and 5"
_APPENDIX = "Yuan, Zaheer and Reddi (ICML 2021), appendix B.4.2"


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of Figures 1 and 5 at the best rates, paired over the seeds."""
    known = ("fed_dual_avg", *_RIVALS, *_BASELINES)
    entries = {name: e for name, e in summary["algorithms"].items() if name in known}
    if "fed_dual_avg" not in entries or config.get("penalty", "l1") != "l1":
        return []
    judge = Criterion("accuracy", "max", config.criterion_rounds)
    accuracy, density, objective = (
        {
            label: best_scores(rows, label, entry, judge._replace(measure=measure))
            for label, entry in entries.items()
        }
        for measure in ("accuracy", "density", "objective")
    )
    ours, found = "fed_dual_avg", []

    def add(label, text, values, needed=0.0, at_least=True, measure="difference", part=""):
        if label in entries:
            labels = {"source": _PAPER, "measure": measure, "part": part}
            claim = over_seeds(text, values(label), needed, at_least)
            # A lead in accuracy must hold over the scans as well as over the seeds.
            leads = values is lead and needed == 0.0
            found.append(claim._replace(**labels, examples=over_scans(label) if leads else None))

    def over_scans(label):
        one, other = (best_right(rows, name, entries[name]) for name in (ours, label))
        return None if one is None or other is None else mcnemar(one, other)

    def lead(label):
        return accuracy[ours] - accuracy[label]

    add(
        "centralized",
        "FedDualAvg is comparable to centralised training",
        lambda name: -lead(name),
        _COMPARABLE,
        at_least=False,
        measure="accuracy behind it",
    )
    more = "more accurate by"
    add("local", "FedDualAvg is clearly better than local training", lead, measure=more)
    text = "FedDualAvg is clearly better than FedAvg with subgradients"
    add("fed_avg_subgradient", text, lead, measure=more)
    add(
        "fed_avg_subgradient",
        "FedAvg with subgradients has a worse objective",
        lambda name: objective[name] / objective[ours],
        1.0,
        measure="times FedDualAvg's",
    )
    for name in ("fed_mid", "fed_mid_osp"):
        add(
            name,
            "FedMiD and FedMiD-OSP are denser",
            lambda label: density[label] / density[ours],
            1.0,
            measure="density over FedDualAvg's",
            part=style(name)[0],
        )
        text = "FedMiD and FedMiD-OSP are somewhat less accurate"
        add(name, text, lead, measure="less accurate by", part=style(name)[0])
    osp = "fed_dual_avg_osp"
    add(
        osp,
        "FedDualAvg-OSP is sparse",
        lambda name: density[name] / density[ours],
        1.5,
        at_least=False,
        measure="density over FedDualAvg's",
    )
    text = "FedDualAvg-OSP is far less accurate"
    add(osp, text, lead, _COMPARABLE, measure="less accurate by")
    return found + _robustness(rows, entries, judge)


def _robustness(rows: list[Row], entries: dict[str, Any], judge: Criterion) -> list[Claim]:
    """Return the claims on how good each method is over all rates, as the source's figure shows.

    The figure has one scale for all methods, so rates count as good near the best accuracy of all.
    The claims near each method's own best accuracy, which favours methods whose best is low, and on
    the mean over the grid are our expectations.
    """
    ours, found = "fed_dual_avg", []
    # A failed run counts as a random classifier.
    tables = {
        label: np.maximum(grid_scores(rows, label, entries[label], judge), 0.5)
        for label in (ours, *_RIVALS)
        if label in entries
    }
    if len(tables) < 2:
        return []
    best = np.max([table.max(axis=0) for table in tables.values()], axis=0)
    for source, part, measure, good in (
        (
            _APPENDIX,
            "",
            f"lead in the share of the grid within {_NEAR} of the best accuracy of all methods",
            lambda table: table >= best - _NEAR,
        ),
        (
            "",
            "share within one per cent of its own best accuracy",
            "lead",
            lambda table: table >= _GOOD * table.max(axis=0),
        ),
        ("", "mean accuracy over the grid", "lead", lambda table: table),
    ):
        means = {label: np.mean(good(table), axis=0) for label, table in tables.items()}
        lead = means[ours] - np.max([means[name] for name in means if name != ours], axis=0)
        text = "FedDualAvg is the most robust to the rates"
        text += "" if source else ", by other measures"
        found.append(over_seeds(text, lead, 0.0, source=source, measure=measure, part=part))
    return found
