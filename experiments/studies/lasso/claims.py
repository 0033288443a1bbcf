"""What the paper says about Figure 3."""

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.plots import style
from experiments.report.summary import (
    Criterion,
    at_best,
    best_scores,
    curves,
    first_rounds,
    scores,
)

_RECOVERED = 0.95  # the F1 at which the support counts as found
_NEAR = 0.01  # rates are good if their F1 is this close to the best of the method
# The source compares these with FedDualAvg, and says nothing of others.
_RIVALS = ("fed_dual_avg_osp", "fed_mid", "fed_mid_osp")


def claims(config, rows, summary):
    """What the paper says about Figure 3, at the best rates, pair by pair over seeds."""
    known = ("fed_dual_avg", *_RIVALS)
    entries = {name: e for name, e in summary["algorithms"].items() if name in known}
    others = [name for name in entries if name in _RIVALS]
    if "fed_dual_avg" not in entries or not others:
        return []
    f1, density = (
        {
            name: np.array(best_scores(rows, name, entry, Criterion(measure, "max", last)))
            for name, entry in entries.items()
        }
        for measure, last in (("f1", config.criterion_rounds), ("density", config.eval_every))
    )
    found = []
    for name in others:
        if name != "fed_dual_avg_osp":
            text = f"FedDualAvg recovers more than {style(name)[0]} (difference in F1)"
            found.append(over_seeds(text, f1["fed_dual_avg"] - f1[name], 0.0))
    if "fed_dual_avg_osp" in others:
        lead = f1["fed_dual_avg"] - f1["fed_dual_avg_osp"]
        text = "FedDualAvg-OSP is very competitive (F1 behind FedDualAvg's)"
        found.append(over_seeds(text, lead, 0.05, at_least=False))
    found += _speed(config, rows, entries, others)
    if "fed_mid" in others:
        densest = np.max([density[name] for name in density if name != "fed_mid"], axis=0)
        text = "FedMiD is the least sparse (density beyond the next)"
        found.append(over_seeds(text, density["fed_mid"] - densest, 0.0))
    return found + _larger_rates(config, rows, entries, others)


def _speed(config, rows, entries, others):
    reached = {
        name: np.array(
            first_rounds(
                at_best(rows, name, entry["best"]), "f1", _RECOVERED, "max", config.num_rounds
            )
        )
        for name, entry in entries.items()
    }
    return [
        over_seeds(
            f"FedDualAvg is faster than {style(name)[0]} (further rounds to an F1 of {_RECOVERED})",
            reached[name] - reached["fed_dual_avg"],
            0.0,
        )
        for name in others
    ]


def _larger_rates(config, rows, entries, others):
    """Where the best rates lie, and how many are good."""

    def lead(step):
        steps = {name: step(entry["best"]) for name, entry in entries.items()}
        return steps["fed_dual_avg"] / max(steps[name] for name in others)

    text = "FedDualAvg benefits from larger rates: its best client rate over the others' largest"
    found = [Claim(text, lead(lambda best: best["client_lr"]), 2.0, quick=False)]
    text = "so does the product of both rates, the step of a round"
    step = lead(lambda best: best["client_lr"] * best["server_lr"])
    found.append(Claim(text, step, 2.0, source=False, quick=False))
    judge = Criterion("f1", "max", config.criterion_rounds)
    good = {}
    for name, entry in entries.items():
        mine = [row for row in rows if row["algorithm"] == name]
        table = np.array(
            [scores(seeds, judge) for seeds in curves(mine, list(entry["best"])).values()]
        )
        good[name] = np.mean(table >= table.max(axis=0) - _NEAR, axis=0)
    rival = np.max([good[name] for name in others], axis=0)
    text = f"and more rates are good for it (share of the grid within {_NEAR} of the best F1, lead)"
    return [*found, over_seeds(text, good["fed_dual_avg"] - rival, 0.0)]
