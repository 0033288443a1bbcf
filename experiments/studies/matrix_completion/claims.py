"""Expectations for matrix completion, from the paper's claims on low-rank estimation."""

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, best_scores
from experiments.study import Config

STATEMENTS = """
Expected by us
objective over fed_mid fed_dual_avg_osp
    | FedMiD and FedDualAvg-OSP end at a larger objective, at best rates
    | times FedDualAvg's | > 1
rank beyond fed_mid | FedMiD ends at a larger rank | rank minus FedDualAvg's | > 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return our expectations, as in Figure 4, paired over the seeds."""
    entries = summary["algorithms"]
    order = sorted(entries, key=lambda name: name != "fed_dual_avg")
    if "fed_dual_avg" not in entries:
        return []
    numbers = {
        measure: {
            name: best_scores(
                rows, name, entries[name], Criterion(measure, "min", config.criterion_rounds)
            )
            for name in order
        }
        for measure in ("objective", "rank")
    }
    return judged(STATEMENTS, numbers)
