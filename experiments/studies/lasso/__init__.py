"""The federated LASSO of Yuan, Zaheer and Reddi (ICML 2021)."""

from typing import Any, Literal

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.plots import Panel
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, at_best, best_scores, first_rounds, grid_scores
from experiments.studies.lasso import problem
from experiments.study import Config, Sweep
from fcojax.types import NonNegative, Positive

STATEMENTS = """
Yuan, Zaheer and Reddi (ICML 2021), section 5.1, Figure 3
f1 behind fed_mid fed_mid_osp
    | FedDualAvg recovers most of the pattern, more than FedMiD and FedMiD-OSP
    | difference in F1 | > 0
f1 behind fed_dual_avg_osp | FedDualAvg-OSP is very competitive | F1 behind FedDualAvg's | < 0.05
rounds beyond fed_dual_avg_osp fed_mid fed_mid_osp
    | FedDualAvg is the fastest | further rounds to an F1 of 0.95 | > 0
density first fed_mid | FedMiD is the least sparse | density beyond the next | > 0
rate | FedDualAvg benefits from larger rates | its best client rate over the others' largest | >= 2
Expected by us
step | FedDualAvg takes larger steps a round
    | its best product of both rates over the others' largest | >= 2
good first fed_dual_avg | more rates are good for FedDualAvg
    | lead in the share of the grid within 0.01 of a method's best F1 | > 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims at the best rates, paired over the seeds."""
    known = summary["algorithms"]
    order = ("fed_dual_avg", "fed_dual_avg_osp", "fed_mid", "fed_mid_osp")
    entries = {name: known[name] for name in order if name in known}
    if order[0] not in entries or len(entries) < 2 or config.get("penalty", "l1") != "l1":
        return []
    judge = Criterion("f1", "max", config.criterion_rounds)
    end = Criterion("density", "max", config.eval_every)
    rates: dict[str, Any] = {}
    numbers: dict[str, Any] = {name: {} for name in ("f1", "rounds", "density", "good")}
    for name, entry in entries.items():
        rates[name] = entry["best"]["client_lr"], entry["best"]["server_lr"]
        best, table = at_best(rows, name, entry["best"]), grid_scores(rows, name, entry, judge)
        numbers["f1"][name] = best_scores(rows, name, entry, judge)
        numbers["density"][name] = best_scores(rows, name, entry, end)
        numbers["rounds"][name] = first_rounds(best, "f1", 0.95, "max", config.num_rounds)
        numbers["good"][name] = np.mean(table >= table.max(axis=0) - 0.01, axis=0)
    tried = {(row["client_lr"], row["server_lr"]) for row in rows if row["algorithm"] in entries}
    (ours, *others), (own, *products) = rates.values(), (np.prod(pair) for pair in rates.values())
    numbers["rate"] = ours[0] / max(rate for rate, _ in others), {"rates": len(dict(tried))}
    numbers["step"] = own / max(products), {"rates": len(tried)}
    return judged(STATEMENTS, numbers)


EXPERIMENT = Sweep(
    title="Federated LASSO: recovery of the true support",
    problem=problem.problem,
    penalty=problem.penalty,
    strengths=problem.strengths,
    panels=(
        Panel("f1", "F1 score of the support", early=True),
        Panel("precision", "precision of the support", early=True),
        Panel("recall", "recall of the support", early=True),
        Panel("density", "share of nonzero weights", early=True),
        Panel("objective", r"objective $F + \psi$", log=True, early=True),
    ),
    algorithms=problem.METHODS,
    plans=problem.PLANS,
    keys={
        NonNegative: "cuts",
        Positive: "candidates",
        Literal["typed", "validation", "pattern"]: "strength",
        Literal["l1", "decreasing"]: "penalty",
    },
    claims=claims,
)
