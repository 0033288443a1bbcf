"""What the source says: the new methods are better than FedMiD and FedDualAvg.

The claims are decided at the source's rates, which are smaller for the two baselines. At each
method's best of several common rates they are our expectations, because the source makes no claim
there. All are paired over the seeds, and compare with the better baseline of each seed.
"""

from collections.abc import Iterator

import numpy as np

from experiments.report.claims import OURS, Claim, judged
from experiments.report.rows import Row, Summary, by_seed
from experiments.report.summary import Criterion, at_best, first_rounds, summarise
from experiments.study import Config

_BASELINES = ("fed_mid", "fed_dual_avg")
_NEW = ("fast_fed_dual_avg", "mc_fed_dual_avg")
_ONE = "c_fed_dual_avg"
_PAPER = "Bao, Crawshaw, Luo and Liu (ICML 2022), experiments"

_RECOVERY = """
rounds | Fast- and MC-FedDualAvg converge faster than FedMiD and FedDualAvg{where}
    | further rounds of the better baseline to an error of {target} | > 0
error | Fast- and MC-FedDualAvg recover the truth more accurately{where}
    | error of the better baseline beyond theirs, at the end | > 0
stages | several stages are faster than one{where} | further rounds of C-FedDualAvg | > 0
"""
_DIGITS = """
loss | Fast- and MC-FedDualAvg end at a lower loss{where}
    | lead over the better baseline | > 0
accuracy | Fast- and MC-FedDualAvg end at a higher accuracy{where}
    | lead over the better baseline | > 0
"""


def recovery(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on errors during the run and at the end."""
    found, target = [], config.target_error
    for head, where, shown in _shown(config, rows, summary, (*_BASELINES, *_NEW, _ONE)):
        rounds, error = {}, {}
        for name, curve in shown.items():
            rounds[name] = first_rounds(curve, "error", target, "min", config.num_rounds)
            error[name] = _ends(curve, "error")
        stages = rounds[_ONE] - rounds["mc_fed_dual_avg"]
        numbers = {"rounds": _leads(rounds), "error": _leads(error), "stages": stages}
        found += judged(head + _RECOVERY.format(where=where, target=f"{target:g}"), numbers)
    return found


def digits(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on losses and accuracies at the end, at both kinds of rates."""
    found = []
    for head, where, shown in _shown(config, rows, summary, (*_BASELINES, *_NEW)):
        loss = _leads({name: _ends(own, "validation_loss") for name, own in shown.items()})
        accuracy = _leads({name: -_ends(own, "accuracy") for name, own in shown.items()})
        found += judged(head + _DIGITS.format(where=where), {"loss": loss, "accuracy": accuracy})
    return found


def _leads(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return by how much each new method is below the lower baseline of each seed."""
    least = np.min([values[name] for name in _BASELINES], axis=0)
    return {name: least - values[name] for name in _NEW}


def _ends(rows: list[Row], measure: str) -> np.ndarray:
    """Return the last value of each seed, or infinity if there is none."""
    ends = [max(own, key=lambda row: row["round"])[measure] for own in by_seed(rows).values()]
    return np.array([np.inf if end is None else end for end in ends])


def _shown(
    config: Config, rows: list[Row], summary: Summary, needed: tuple[str, ...]
) -> Iterator[tuple[str, str, dict[str, list[Row]]]]:
    """Yield who says it, at which rates, and each method's rows there.

    The rates are the source's, in single precision as in the rows, and the best common ones.
    """
    entries = {name: e for name, e in summary["algorithms"].items() if name in (*needed, _ONE)}
    if not {*needed} <= entries.keys():
        return
    own = {name: [row for row in rows if row["algorithm"] == name] for name in entries}
    rates = {name: {row["client_lr"] for row in found} for name, found in own.items()}
    theirs, best, shared = {}, {}, set.intersection(*rates.values())
    for name, entry in entries.items():
        target = config.source_lr.get(name, entry["best"]["client_lr"])
        near = [rate for rate in rates[name] if abs(rate / target - 1) < 1e-3]
        theirs[name] = entry["best"] | {"client_lr": near[0] if near else target}
        if len(shared) > 1:
            common = [row for row in own[name] if row["client_lr"] in shared]
            judge = Criterion(**entry["criterion"])
            best[name] = summarise(common, list(entry["best"]), judge)["best"]
    places = ((_PAPER, "", theirs), (OURS, ", at the best of equal rates", best))
    for who, where, points in places:
        shown = {name: at_best(own[name], name, point) for name, point in points.items()}
        if shown and all(shown.values()):
            yield who, where, shown
