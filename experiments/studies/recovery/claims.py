"""Claims of the source: the new methods do better than FedMiD and FedDualAvg.

Judged at the source's rates, which are smaller for the two baselines, and at each method's best of
the same rates.
"""

import math
from typing import Any

from experiments.report.claims import Claim
from experiments.report.plots import style
from experiments.report.rows import Row, Summary
from experiments.report.summary import at_best, curves
from experiments.study import Config

Points = dict[str, dict[str, Any]]  # by algorithm

_BASELINES = ("fed_mid", "fed_dual_avg")
_NEW = ("fast_fed_dual_avg", "mc_fed_dual_avg")
_NAMED = (*_BASELINES, *_NEW, "c_fed_dual_avg")


def recovery(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on errors during the run and at the end."""
    if not {*_NAMED} <= summary["algorithms"].keys():
        return []
    found = []
    for where, points in _points(config, rows, summary).items():
        found += _at(config, rows, points, f"at the {where}")
    return [claim._replace(quick=False) for claim in found]


def _points(config: Config, rows: list[Row], summary: Summary) -> dict[str, Points]:
    """Return the points at the source's rates and at the best of equal rates."""
    entries = summary["algorithms"]
    best = {name: entries[name]["best"] for name in _NAMED if name in entries}
    theirs = _at_their_rates(config, rows, best)
    return {"source's rates": theirs, "best of equal rates": best}


def _at_their_rates(config: Config, rows: list[Row], best: Points) -> Points:
    """Return the points at the source's rates, as the rows have them in single precision."""
    points = {}
    for name, point in best.items():
        target = config.source_lr.get(name, point["client_lr"])
        rates = {row["client_lr"] for row in rows if row["algorithm"] == name}
        nearest = min(rates, key=lambda rate: abs(rate - target))
        near = abs(nearest / target - 1) < 1e-3
        points[name] = point | {"client_lr": nearest if near else target}
    return points


def _at(config: Config, rows: list[Row], points: Points, where: str) -> list[Claim]:
    shown = {name: at_best(rows, name, point) for name, point in points.items()}
    if not all(shown.values()):
        return []
    means = {name: _mean_errors(curve) for name, curve in shown.items()}
    reached = {name: _first_below(errors, config.target_error) for name, errors in means.items()}
    last = {name: list(errors.values())[-1] for name, errors in means.items()}
    found = []
    for name in _NEW:
        first = min(min(reached[other] for other in _BASELINES), config.num_rounds)
        text = f"{style(name)[0]} {where}: "
        found += [
            Claim(
                f"{text}round at which the error is {config.target_error:g}, against the "
                "baselines'", reached[name], first, at_least=False,
            ),
            Claim(
                f"{text}error at the end, against the baselines'", last[name],
                min(last[other] for other in _BASELINES), at_least=False,
            ),
        ]  # fmt: skip
    stages = Claim(
        f"stages speed C-FedDualAvg up {where} (round)", reached["mc_fed_dual_avg"],
        min(reached["c_fed_dual_avg"], config.num_rounds), at_least=False,
    )  # fmt: skip
    return [*found, stages]


def digits(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on losses and accuracies at the end, at both kinds of rates."""
    if not {*_BASELINES, *_NEW} <= summary["algorithms"].keys():
        return []
    found = []
    for where, points in _points(config, rows, summary).items():
        last = {name: at_best(rows, name, point)[-1:] for name, point in points.items()}
        if not all(last.values()):
            continue
        for name in _NEW:
            for measure, goal in (("validation_loss", min), ("accuracy", max)):
                others = goal(last[other][0][measure] for other in _BASELINES)
                word = measure.replace("_", " ")
                text = f"{style(name)[0]}, {where}: {word} at the end, against the baselines'"
                ours = last[name][0][measure]
                found.append(Claim(text, ours, others, goal is max, quick=False))
    return found


def _mean_errors(rows: list[Row]) -> dict[int, float]:
    """Return the mean error over the seeds by round, in order."""
    seeds = curves(rows, ())[()].values()
    means = {}
    for same_round in zip(*seeds, strict=True):
        errors = [math.inf if row["error"] is None else row["error"] for row in same_round]
        means[same_round[0]["round"]] = sum(errors) / len(errors)
    return means


def _first_below(errors: dict[int, float], threshold: float) -> float:
    """Return the first round whose error is at most the threshold, or infinity."""
    return min((at for at, error in errors.items() if error <= threshold), default=math.inf)
