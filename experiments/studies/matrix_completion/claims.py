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
            text = f"objective of {style(label)[0]} over that of FedDualAvg, at best rates"
            found.append(over_seeds(text, ratio, 1.0, source=False))
    if "fed_mid" in entries:
        more = ends("fed_mid", "rank") - ends("fed_dual_avg", "rank")
        found.append(over_seeds("rank of FedMiD minus FedDualAvg's", more, 0.0, source=False))
    return found
