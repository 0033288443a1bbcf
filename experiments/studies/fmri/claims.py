"""Claims of the paper about Figures 1 and 5."""

from typing import Any

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.plots import style
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, best_scores, grid_scores
from experiments.study import Config

# "Comparable" is read as within two points, "somewhat less" as any difference.
_COMPARABLE = 0.02
_GOOD = 0.99  # rates are good above this share of the method's best accuracy
_NEAR = 0.01  # rates are good within this distance of the best accuracy of all methods
# The methods that the source compares with FedDualAvg over all rates.
_RIVALS = ("fed_dual_avg_osp", "fed_mid", "fed_mid_osp", "fed_avg_subgradient")
_BASELINES = ("centralized", "local")


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

    def add(label, text, values, needed=0.0, at_least=True):
        if label in entries:
            found.append(over_seeds(text.format(style(label)[0]), values(label), needed, at_least))

    def lead(label):
        return accuracy[ours] - accuracy[label]

    add(
        "centralized",
        "FedDualAvg is about as accurate as {} (behind it)",
        lambda name: -lead(name),
        _COMPARABLE,
        at_least=False,
    )
    add("local", "FedDualAvg is more accurate than {} (difference)", lead)
    add("fed_avg_subgradient", "FedDualAvg is more accurate than {} (difference)", lead)
    add(
        "fed_avg_subgradient",
        "{} has a worse objective (times FedDualAvg's)",
        lambda name: objective[name] / objective[ours],
        1.0,
    )
    for name in ("fed_mid", "fed_mid_osp"):
        add(
            name,
            "{} is denser than FedDualAvg (ratio)",
            lambda label: density[label] / density[ours],
            1.0,
        )
        add(name, "{} is somewhat less accurate (difference)", lead)
    osp = "fed_dual_avg_osp"
    add(
        osp,
        "{} is sparse (density over FedDualAvg's)",
        lambda name: density[name] / density[ours],
        1.5,
        at_least=False,
    )
    add(osp, "{} is far less accurate (difference)", lead, _COMPARABLE)
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
    for text, good, source in (
        (
            f"share of the grid within {_NEAR} of the best accuracy of all methods",
            lambda table: table >= best - _NEAR,
            True,
        ),
        (
            "share of the grid within one per cent of a method's own best accuracy",
            lambda table: table >= _GOOD * table.max(axis=0),
            False,
        ),
        ("mean accuracy over the grid", lambda table: table, False),
    ):
        means = {label: np.mean(good(table), axis=0) for label, table in tables.items()}
        lead = means[ours] - np.max([means[name] for name in means if name != ours], axis=0)
        text = f"FedDualAvg is the most robust to the rates (lead in the {text})"
        found.append(over_seeds(text, lead, 0.0, source=source))
    return found
