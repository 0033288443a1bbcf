"""Claims of the paper about Figure 3."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.plots import style
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, at_best, best_scores, first_rounds, grid_scores
from experiments.study import Config

_RECOVERED = 0.95  # the support counts as found from this F1 on
_NEAR = 0.01  # rates count as good within this distance of a method's best F1
# The methods that the source compares with FedDualAvg.
_RIVALS = ("fed_dual_avg_osp", "fed_mid", "fed_mid_osp")
_PAPER = "Yuan, Zaheer and Reddi (ICML 2021), section 5.1, Figure 3"


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of Figure 3 at the best rates, paired over the seeds."""
    known = ("fed_dual_avg", *_RIVALS)
    entries = {name: e for name, e in summary["algorithms"].items() if name in known}
    others = [name for name in entries if name in _RIVALS]
    if "fed_dual_avg" not in entries or not others or config.get("penalty", "l1") != "l1":
        return []
    f1, density = (
        {
            name: best_scores(rows, name, entry, Criterion(measure, "max", last))
            for name, entry in entries.items()
        }
        for measure, last in (("f1", config.criterion_rounds), ("density", config.eval_every))
    )
    found = []
    for name in others:
        if name != "fed_dual_avg_osp":
            found.append(
                over_seeds(
                    "FedDualAvg recovers most of the pattern, more than FedMiD and FedMiD-OSP",
                    f1["fed_dual_avg"] - f1[name],
                    0.0,
                    source=_PAPER,
                    measure="difference in F1",
                    part=style(name)[0],
                )
            )
    if "fed_dual_avg_osp" in others:
        lead = f1["fed_dual_avg"] - f1["fed_dual_avg_osp"]
        found.append(
            over_seeds(
                "FedDualAvg-OSP is very competitive",
                lead,
                0.05,
                at_least=False,
                source=_PAPER,
                measure="F1 behind FedDualAvg's",
            )
        )
    reached = {
        name: first_rounds(
            at_best(rows, name, entry["best"]), "f1", _RECOVERED, "max", config.num_rounds
        )
        for name, entry in entries.items()
    }
    for name in others:
        found.append(
            over_seeds(
                "FedDualAvg is the fastest",
                reached[name] - reached["fed_dual_avg"],
                0.0,
                source=_PAPER,
                measure=f"further rounds to an F1 of {_RECOVERED}",
                part=style(name)[0],
            )
        )
    if "fed_mid" in others:
        densest = np.max([density[name] for name in density if name != "fed_mid"], axis=0)
        found.append(
            over_seeds(
                "FedMiD is the least sparse",
                density["fed_mid"] - densest,
                0.0,
                source=_PAPER,
                measure="density beyond the next",
            )
        )
    return found + _larger_rates(config, rows, entries, others)


def _larger_rates(
    config: Config, rows: list[Row], entries: dict[str, Any], others: Sequence[str]
) -> list[Claim]:
    """Return the claims on the best rates, and on the share of rates that are good."""

    def lead(step):
        steps = {name: step(entry["best"]) for name, entry in entries.items()}
        return steps["fed_dual_avg"] / max(steps[name] for name in others)

    ours = [row for row in rows if row["algorithm"] in entries]
    rates, pairs = (
        len({tuple(row[field] for field in fields) for row in ours})
        for fields in (("client_lr",), ("client_lr", "server_lr"))
    )
    best_rate = lead(lambda best: best["client_lr"])
    step = lead(lambda best: best["client_lr"] * best["server_lr"])
    found = [
        Claim(
            "FedDualAvg benefits from larger rates",
            best_rate,
            2.0,
            source=_PAPER,
            measure="its best client rate over the others' largest",
            quick=False,
            rates=rates,
        ),
        Claim(
            "FedDualAvg takes larger steps a round",
            step,
            2.0,
            measure="its best product of both rates over the others' largest",
            quick=False,
            rates=pairs,
        ),
    ]
    criterion = Criterion("f1", "max", config.criterion_rounds)
    good = {}
    for name, entry in entries.items():
        table = grid_scores(rows, name, entry, criterion)
        good[name] = np.mean(table >= table.max(axis=0) - _NEAR, axis=0)
    rival = np.max([good[name] for name in others], axis=0)
    text = "more rates are good for FedDualAvg"
    measure = f"lead in the share of the grid within {_NEAR} of a method's best F1"
    return [*found, over_seeds(text, good["fed_dual_avg"] - rival, 0.0, measure=measure)]
