"""Claims of the source: the new methods are better than FedMiD and FedDualAvg.

The claims are decided at the source's rates, which are smaller for the two baselines. At each
method's best of several common rates they are our expectations, because the source makes no claim
there. All are paired over the seeds, and compare with the better baseline of each seed.
"""

from typing import Any

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, by_seed
from experiments.report.summary import Criterion, at_best, first_rounds, summarise
from experiments.study import Config

Points = dict[str, dict[str, Any]]  # by algorithm

_BASELINES = ("fed_mid", "fed_dual_avg")
_NEW = ("fast_fed_dual_avg", "mc_fed_dual_avg")
_NAMED = (*_BASELINES, *_NEW, "c_fed_dual_avg")
_THEIRS = "source's rates"
_PAPER = "Bao, Crawshaw, Luo and Liu (ICML 2022), experiments"


def recovery(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on errors during the run and at the end."""
    if not {*_NAMED} <= summary["algorithms"].keys():
        return []
    found = []
    for where, points in _points(config, rows, summary).items():
        found += _placed(_at(config, rows, points), where)
    return found


def _placed(claims: list[Claim], where: str) -> list[Claim]:
    """Return the claims at the source's rates as the source's, others as ours."""
    if where == _THEIRS:
        return [claim._replace(source=_PAPER) for claim in claims]
    return [claim._replace(text=f"{claim.text}, at the {where}") for claim in claims]


def _points(config: Config, rows: list[Row], summary: Summary) -> dict[str, Points]:
    """Return the points at the source's rates, and at the best of the common rates."""
    entries = summary["algorithms"]
    best = {name: entries[name]["best"] for name in _NAMED if name in entries}
    rates = {name: set() for name in best}
    for row in rows:
        if row["algorithm"] in rates:
            rates[row["algorithm"]].add(row["client_lr"])
    points = {_THEIRS: _at_their_rates(config, rates, best)}
    shared = set.intersection(*rates.values())
    if len(shared) > 1:
        points["best of equal rates"] = {
            name: summarise(
                [r for r in rows if r["algorithm"] == name and r["client_lr"] in shared],
                list(point),
                Criterion(**entries[name]["criterion"]),
            )["best"]
            for name, point in best.items()
        }
    return points


def _at_their_rates(config: Config, rates: dict[str, set[float]], best: Points) -> Points:
    """Return the points at the source's rates, in single precision as in the rows."""
    points = {}
    for name, point in best.items():
        target = config.source_lr.get(name, point["client_lr"])
        nearest = min(rates[name], key=lambda rate: abs(rate - target))
        near = abs(nearest / target - 1) < 1e-3
        points[name] = point | {"client_lr": nearest if near else target}
    return points


def _at(config: Config, rows: list[Row], points: Points) -> list[Claim]:
    shown = {name: at_best(rows, name, point) for name, point in points.items()}
    if not all(shown.values()):
        return []
    reached = {
        name: first_rounds(curve, "error", config.target_error, "min", config.num_rounds)
        for name, curve in shown.items()
    }
    last = {name: _ends(curve, "error") for name, curve in shown.items()}
    found = []
    for name in _NEW:
        found += [
            over_seeds(
                "Fast- and MC-FedDualAvg converge faster than FedMiD and FedDualAvg",
                np.min([reached[other] for other in _BASELINES], 0) - reached[name],
                0,
                measure="further rounds of the better baseline to an error of "
                f"{config.target_error:g}",
                part=style(name)[0],
            ),
            over_seeds(
                "Fast- and MC-FedDualAvg recover the truth more accurately",
                np.min([last[other] for other in _BASELINES], 0) - last[name],
                0,
                measure="error of the better baseline beyond theirs, at the end",
                part=style(name)[0],
            ),
        ]
    further = reached["c_fed_dual_avg"] - reached["mc_fed_dual_avg"]
    text = "several stages are faster than one"
    return [*found, over_seeds(text, further, 0, measure="further rounds of C-FedDualAvg")]


def digits(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on losses and accuracies at the end, at both kinds of rates."""
    if not {*_BASELINES, *_NEW} <= summary["algorithms"].keys():
        return []
    found = []
    for where, points in _points(config, rows, summary).items():
        shown = {name: at_best(rows, name, point) for name, point in points.items()}
        if not all(shown.values()):
            continue
        for name in _NEW:
            for measure, sign in (("validation_loss", -1), ("accuracy", 1)):
                ends = {other: sign * _ends(curve, measure) for other, curve in shown.items()}
                lead = ends[name] - np.max([ends[other] for other in _BASELINES], axis=0)
                word = {"validation_loss": "a lower loss", "accuracy": "a higher accuracy"}[measure]
                text = f"Fast- and MC-FedDualAvg end at {word}"
                names = {"measure": "lead over the better baseline", "part": style(name)[0]}
                found += _placed([over_seeds(text, lead, 0)._replace(**names)], where)
    return found


def _ends(rows: list[Row], measure: str) -> np.ndarray:
    """Return the last value of each seed, or infinity if there is none."""
    ends = [max(own, key=lambda row: row["round"])[measure] for own in by_seed(rows).values()]
    return np.array([np.inf if end is None else end for end in ends])
