"""Expectations for matrix completion, from the paper's claims on low-rank estimation."""

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, best_scores
from experiments.study import Config

STATEMENTS = """
Expected by us
objective | FedMiD and FedDualAvg-OSP end at a larger objective, at best rates
    | times FedDualAvg's | > 1
rank | FedMiD ends at a larger rank | rank minus FedDualAvg's | > 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return our expectations, as in Figure 4, paired over the seeds."""
    entries, ours = summary["algorithms"], "fed_dual_avg"
    if ours not in entries:
        return []
    objective, rank = (
        {
            name: best_scores(rows, name, e, Criterion(measure, "min", config.criterion_rounds))
            for name, e in entries.items()
        }
        for measure in ("objective", "rank")
    )
    others = [name for name in ("fed_mid", "fed_dual_avg_osp") if name in entries]
    numbers = {
        "objective": {name: objective[name] / objective[ours] for name in others},
        "rank": rank["fed_mid"] - rank[ours] if "fed_mid" in entries else None,
    }
    return judged(STATEMENTS, numbers)
