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
_GOOD = 0.99  # the share of the best accuracy from which rates count as good
# The methods that the source compares with FedDualAvg over all rates.
_RIVALS = ("fed_dual_avg_osp", "fed_mid", "fed_mid_osp", "fed_avg_subgradient")
_BASELINES = ("centralized", "local")


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of Figures 1 and 5 at the best rates, paired over the seeds."""
    known = ("fed_dual_avg", *_RIVALS, *_BASELINES)
    entries = {name: e for name, e in summary["algorithms"].items() if name in known}
    if "fed_dual_avg" not in entries:
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

    add("centralized", "FedDualAvg is about as accurate as {} (behind it)",
        lambda name: -lead(name), _COMPARABLE, at_least=False)  # fmt: skip
    add("local", "FedDualAvg is more accurate than {} (difference)", lead)
    add("fed_avg_subgradient", "FedDualAvg is more accurate than {} (difference)", lead)
    add("fed_avg_subgradient", "{} has a worse objective (times FedDualAvg's)",
        lambda name: objective[name] / objective[ours], 1.0)  # fmt: skip
    for name in ("fed_mid", "fed_mid_osp"):
        add(name, "{} is denser than FedDualAvg (ratio)",
            lambda label: density[label] / density[ours], 1.0)  # fmt: skip
        add(name, "{} is somewhat less accurate (difference)", lead)
    osp = "fed_dual_avg_osp"
    add(osp, "{} is sparse (density over FedDualAvg's)",
        lambda name: density[name] / density[ours], 1.5, at_least=False)  # fmt: skip
    add(osp, "but {} is far less accurate (difference)", lead, _COMPARABLE)
    return found + _robustness(rows, entries, judge)


def _robustness(rows: list[Row], entries: dict[str, Any], judge: Criterion) -> list[Claim]:
    """Return the claim on the share of the grid that is good for each method."""
    share = {}
    for label, entry in entries.items():
        table = grid_scores(rows, label, entry, judge)
        share[label] = np.mean(table >= _GOOD * table.max(axis=0), axis=0)
    rivals = [share[label] for label in share if label in _RIVALS]
    if not rivals:
        return []
    text = (
        "FedDualAvg is the most robust to the rates (lead in the share of the grid within one per "
        "cent of a method's best accuracy)"
    )
    return [over_seeds(text, share["fed_dual_avg"] - np.max(rivals, axis=0), 0.0)]
