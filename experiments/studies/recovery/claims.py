"""What the source says: the new methods do better than FedMiD and FedDualAvg.

At its own rates, which are smaller for the two baselines, and at each method's best of the same
rates.
"""

import math

from experiments.report.claims import Claim
from experiments.report.plots import style
from experiments.report.summary import at_best, curves

_BASELINES = ("fed_mid", "fed_dual_avg")
_NEW = ("fast_fed_dual_avg", "mc_fed_dual_avg")
_NAMED = (*_BASELINES, *_NEW, "c_fed_dual_avg")


def recovery(config, rows, summary):
    """Errors on the way and at the end."""
    entries = summary["algorithms"]
    if not {*_NAMED} <= entries.keys():
        return []
    best = {name: entries[name]["best"] for name in _NAMED if name in entries}
    theirs = _at_their_rates(config, rows, best)
    found = [
        *_at(config, rows, theirs, "at the source's rates"),
        *_at(config, rows, best, "at the best of equal rates"),
    ]
    return [claim._replace(quick=False) for claim in found]


def _at_their_rates(config, rows, best):
    """The points at the source's rates; rows have theirs to single precision."""
    points = {}
    for name, point in best.items():
        wanted = config.source_lr.get(name, point["client_lr"])
        rates = {row["client_lr"] for row in rows if row["algorithm"] == name}
        nearest = min(rates, key=lambda rate: abs(rate - wanted))
        near = abs(nearest / wanted - 1) < 1e-3
        points[name] = point | {"client_lr": nearest if near else wanted}
    return points


def _at(config, rows, points, where):
    shown = {name: at_best(rows, name, point) for name, point in points.items()}
    if not all(shown.values()):
        return []
    means = {name: _mean_errors(seen) for name, seen in shown.items()}
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


def digits(config, rows, summary):
    """Losses and accuracies at the end, at the source's rates and at the best of equal ones."""
    entries = summary["algorithms"]
    if not {*_BASELINES, *_NEW} <= entries.keys():
        return []
    best = {name: entries[name]["best"] for name in _NAMED if name in entries}
    theirs = _at_their_rates(config, rows, best)
    found = []
    for points, where in ((theirs, "source's rates"), (best, "best of equal rates")):
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


def _mean_errors(rows):
    """The mean error of the seeds by round, in order."""
    seeds = curves(rows, ())[()].values()
    means = {}
    for look in zip(*seeds, strict=True):
        errors = [math.inf if row["error"] is None else row["error"] for row in look]
        means[look[0]["round"]] = sum(errors) / len(errors)
    return means


def _first_below(errors, threshold):
    """The first round by which the error is no larger; infinity if there is none."""
    return min((at for at, error in errors.items() if error <= threshold), default=math.inf)
