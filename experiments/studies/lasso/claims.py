"""What the paper says about Figure 3."""

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, at_best, best_scores, first_rounds, grid_scores
from experiments.study import Config

_OURS, _OSP, _MID, _MID_OSP = "fed_dual_avg", "fed_dual_avg_osp", "fed_mid", "fed_mid_osp"

STATEMENTS = """
Yuan, Zaheer and Reddi (ICML 2021), section 5.1, Figure 3
f1 | FedDualAvg recovers most of the pattern, more than FedMiD and FedMiD-OSP
   | difference in F1 | > 0
osp | FedDualAvg-OSP is very competitive | F1 behind FedDualAvg's | < 0.05
rounds | FedDualAvg is the fastest | further rounds to an F1 of 0.95 | > 0
density | FedMiD is the least sparse | density beyond the next | > 0
rate | FedDualAvg benefits from larger rates | its best client rate over the others' largest | >= 2
Expected by us
step | FedDualAvg takes larger steps a round
     | its best product of both rates over the others' largest | >= 2
good | more rates are good for FedDualAvg
     | lead in the share of the grid within 0.01 of a method's best F1 | > 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims at the best rates, paired over the seeds."""
    known = summary["algorithms"]
    others = [name for name in known if name in (_OSP, _MID, _MID_OSP)]
    if _OURS not in known or not others or config.get("penalty", "l1") != "l1":
        return []
    entries = {name: known[name] for name in (_OURS, *others)}
    judge = Criterion("f1", "max", config.criterion_rounds)
    f1, density, rounds, good = {}, {}, {}, {}
    for name, entry in entries.items():
        f1[name] = best_scores(rows, name, entry, judge)
        density[name] = best_scores(
            rows, name, entry, judge._replace(measure="density", last_rounds=config.eval_every)
        )
        best = at_best(rows, name, entry["best"])
        rounds[name] = first_rounds(best, "f1", 0.95, "max", config.num_rounds)
        table = grid_scores(rows, name, entry, judge)
        good[name] = np.mean(table >= table.max(axis=0) - 0.01, axis=0)

    def over_others(*fields):
        """Return the ratio of the best products of these rates, and how many were tried."""
        best = {
            name: np.prod([e["best"][field] for field in fields]) for name, e in entries.items()
        }
        tried = {tuple(r[field] for field in fields) for r in rows if r["algorithm"] in entries}
        ratio = best[_OURS] / max(best[name] for name in others)
        return ratio, {"rates": len(tried)}

    leads = {name: f1[_OURS] - f1[name] for name in others}
    next_ = np.max([density[name] for name in entries if name != _MID], axis=0)
    numbers = {
        "f1": {name: leads[name] for name in others if name != _OSP},
        "osp": leads.get(_OSP),
        "rounds": {name: rounds[name] - rounds[_OURS] for name in others},
        "density": density[_MID] - next_ if _MID in others else None,
        "rate": over_others("client_lr"),
        "step": over_others("client_lr", "server_lr"),
        "good": good[_OURS] - np.max([good[name] for name in others], axis=0),
    }
    return judged(STATEMENTS, numbers)
