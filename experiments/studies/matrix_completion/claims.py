"""Expectations for matrix completion, from the paper's claims on low-rank estimation."""

from experiments.report.claims import Claim, over_seeds
from experiments.report.plots import style
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, best_scores
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return our expectations, as in Figure 4, paired over the seeds."""
    entries = summary["algorithms"]
    if "fed_dual_avg" not in entries:
        return []

    def ends(label, measure):
        criterion = Criterion(measure, "min", config.criterion_rounds)
        return best_scores(rows, label, entries[label], criterion)

    found = []
    for label in ("fed_mid", "fed_dual_avg_osp"):
        if label in entries:
            ratio = ends(label, "objective") / ends("fed_dual_avg", "objective")
            text = "FedMiD and FedDualAvg-OSP end at a larger objective, at best rates"
            measure = "times FedDualAvg's"
            found.append(over_seeds(text, ratio, 1.0, measure=measure, part=style(label)[0]))
    if "fed_mid" in entries:
        more = ends("fed_mid", "rank") - ends("fed_dual_avg", "rank")
        text = "FedMiD ends at a larger rank"
        found.append(over_seeds(text, more, 0.0, measure="rank minus FedDualAvg's"))
    return found
