"""Claims of the paper about Figure 4."""

from typing import Any

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, by_seed, hparams_of
from experiments.report.summary import (
    Criterion,
    at_best,
    best_scores,
    curves,
    first_rounds,
    score,
)
from experiments.study import Config

# Excesses over the optimum below this share of it count as this share: single precision and the
# pooled solver are no more exact.
_LEAST = 1e-5
_RIVALS = ("fed_mid", "fed_mid_osp")
_RIVALS = ("fed_mid", "fed_mid_osp")
_EXCESS = "excess over the optimum above FedDualAvg's, in powers of ten"
_PAPER = "Yuan, Zaheer and Reddi (ICML 2021), section 5.2, Figure 4"


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of Figure 4 at the best rates, paired over the seeds."""
    entries = summary["algorithms"]
    if "fed_dual_avg" not in entries:
        return []
    best = {name: at_best(rows, name, entry["best"]) for name, entry in entries.items()}
    ranks = {name: _rounds_to_rank(config, curve) for name, curve in best.items()}
    found = [
        over_seeds(
            "FedDualAvg has exactly the true rank in fewer than 100 rounds",
            ranks["fed_dual_avg"],
            100,
            at_least=False,
            source=_PAPER,
            measure="first round",
        )
    ]
    least = min(entry["objective"] for entry in summary["optimum"].values())
    for name in (name for name in _RIVALS if name in entries):
        found.append(
            over_seeds(
                "FedMiD and FedMiD-OSP are slower in rank",
                ranks[name] - ranks["fed_dual_avg"],
                0.0,
                source=_PAPER,
                measure="further rounds to the true rank",
                part=style(name)[0],
            )
        )
        found.append(
            over_seeds(
                "FedMiD and FedMiD-OSP are slower in loss",
                _above(best[name], best["fed_dual_avg"], least),
                0.0,
                source=_PAPER,
                measure=f"{_EXCESS}, mean over the rounds",
                part=style(name)[0],
            )
        )
    if "fed_dual_avg_osp" in entries:
        rank = Criterion("rank", "min", config.eval_every)
        last = best_scores(rows, "fed_dual_avg_osp", entries["fed_dual_avg_osp"], rank)
        found.append(
            over_seeds(
                "FedDualAvg-OSP ends at a low rank",
                last - config.true_rank,
                1,
                at_least=False,
                source=_PAPER,
                measure="rank beyond the true one",
            )
        )
        judge = Criterion("error_fro", "min", config.criterion_rounds)
        osp, ours = (
            best_scores(rows, name, entries[name], judge)
            for name in ("fed_dual_avg_osp", "fed_dual_avg")
        )
        found.append(
            over_seeds(
                "FedDualAvg-OSP is far less accurate",
                osp / ours,
                1.5,
                source=_PAPER,
                measure="its Frobenius error over FedDualAvg's",
            )
        )
    return found + _at_equal_products(config, rows, entries, least)


def _at_equal_products(
    config: Config, rows: list[Row], entries: dict[str, Any], least: float
) -> list[Claim]:
    """Return our expectations for methods with the same product of rates, the step of a round.

    The best client rate is the smallest of any grid, so a method's best point depends on the end of
    its grid. Each method is shown at its best point for a product, and the mean is over the
    products at which neither diverges.
    """
    found = []
    points = {
        name: _by_product(config, [row for row in rows if row["algorithm"] == name], entry)
        for name, entry in entries.items()
        if name in ("fed_dual_avg", *_RIVALS)
    }
    ours = points["fed_dual_avg"]
    for name in (name for name in _RIVALS if name in points):
        shared = [
            product
            for product in sorted(ours.keys() & points[name].keys())
            if all(_finished(curve[product]) for curve in (ours, points[name]))
        ]
        if not shared:
            continue
        above = [_above(points[name][product], ours[product], least) for product in shared]
        found.append(
            over_seeds(
                "at equal products of both rates FedMiD and FedMiD-OSP are slower in loss",
                np.mean(above, axis=0),
                0.0,
                measure=f"{_EXCESS}, mean over the rounds and the products",
                part=style(name)[0],
            )
        )
    return found


def _finished(curve: list[Row]) -> bool:
    return not any(row["status"].startswith("diverged") for row in curve)


def _by_product(config: Config, rows: list[Row], entry: dict[str, Any]) -> dict[float, list[Row]]:
    """Return, for each product of both rates, the rows of the point with the lowest error."""
    judge = Criterion("error_fro", "min", config.criterion_rounds)
    best: dict[float, tuple[float, tuple]] = {}
    for point, seeds in curves(rows, list(entry["best"])).items():
        rates = dict(zip(entry["best"], point, strict=True))
        product = float(f"{rates['client_lr'] * rates['server_lr']:.3g}")
        found = (score(seeds, judge), point)
        best[product] = min(best.get(product, found), found)
    return {
        product: [row for row in rows if hparams_of(row, list(entry["best"])) == point]
        for product, (_, point) in best.items()
    }


def _above(theirs: list[Row], ours: list[Row], least: float) -> np.ndarray:
    """Return by how much a curve lies above another for each seed, in powers of ten of the excess.

    The mean over all rounds of the logarithm of the ratio of what objectives are above the optimum:
    one number for the whole curve, where rounds to a level depend on the level.
    """
    logs = []
    for curve in (theirs, ours):
        seeds = by_seed(sorted(curve, key=lambda row: row["round"]))
        rounds = [row["round"] for row in next(iter(seeds.values()))]
        ends = [
            [np.inf if (x := row["objective"]) is None else x for row in own]
            for _, own in sorted(seeds.items())
        ]
        excess = np.maximum(np.array(ends) - least, _LEAST * least)
        logs.append(np.trapezoid(np.log10(excess), rounds) / (rounds[-1] - rounds[0]))
    return logs[0] - logs[1]


def _rounds_to_rank(config: Config, curve: list[Row]) -> np.ndarray:
    """Return the first round at which each seed has the true rank; the last round if none."""
    exact = [row | {"exact": float(row["rank"] == config.true_rank)} for row in curve]
    return first_rounds(exact, "exact", 1.0, "max", config.num_rounds)
