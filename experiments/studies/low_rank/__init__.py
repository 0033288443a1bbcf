"""Federated low-rank matrix estimation: Yuan, Zaheer and Reddi (ICML 2021), section 5.2."""

from collections import defaultdict

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.plots import Panel
from experiments.report.rows import Row, Summary, column, select
from experiments.report.summary import Criterion, at_best, curves, first_rounds, score, scores
from experiments.study import Config, Sweep, from_config, on_kernel
from fcojax.problems import low_rank
from fcojax.transforms import nuclear
from fcojax.types import NonNegative

STATEMENTS = """
Yuan, Zaheer and Reddi (ICML 2021), section 5.2, Figure 4
rank its fed_dual_avg
    | FedDualAvg has exactly the true rank in fewer than 100 rounds | first round | < 100
stays its fed_dual_avg | FedDualAvg has exactly the true rank in fewer than 100 rounds
    | round from which it stays, in all seeds | <= 99
rank beyond fed_mid fed_mid_osp
    | FedMiD and FedMiD-OSP are slower in rank | further rounds to the true rank | > 0
loss beyond fed_mid fed_mid_osp | FedMiD and FedMiD-OSP are slower in loss
    | excess over the optimum above FedDualAvg's, in powers of ten, mean over the rounds | > 0
end its fed_dual_avg_osp | FedDualAvg-OSP ends at a low rank | rank beyond the true one | < 1
error over fed_dual_avg_osp
    | FedDualAvg-OSP is far less accurate | its Frobenius error over FedDualAvg's | > 1.5
Yuan, Zaheer and Reddi (ICML 2021), section 5
error over fed_avg_subgradient | FedAvg with subgradients is consistently ineffective
    | its Frobenius error over FedDualAvg's | > 1.5
loss beyond fed_avg_subgradient | FedAvg with subgradients is consistently ineffective
    | excess over the optimum above FedDualAvg's, in powers of ten, mean over the rounds | > 0
end its fed_avg_subgradient | FedAvg with subgradients is consistently ineffective
    | rank beyond the true one | > 1
Expected by us
equal | at equal products of both rates FedMiD and FedMiD-OSP are slower in loss
    | excess over the optimum above FedDualAvg's, in powers of ten, mean over the rounds and the
    products | > 0
"""
_ORDER = ("fed_dual_avg", "fed_mid", "fed_mid_osp", "fed_dual_avg_osp", "fed_avg_subgradient")


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims at the best rates, and at equal products of rates, paired over the seeds.

    The best client rate is the smallest of any grid, so a method's best point depends on the end of
    its grid. At equal products, the step of a round, each method is shown at its best point for a
    product, and the mean is over the products at which neither diverges.
    """
    entries = summary["algorithms"]
    if _ORDER[0] not in entries:
        return []
    judge = Criterion("error_fro", "min", config.criterion_rounds)
    end, products = Criterion("rank", "min", config.eval_every), {}
    numbers: dict[str, dict] = defaultdict(dict)
    for name in (name for name in _ORDER if name in entries):
        best = entries[name]["best"]
        points = curves(select(rows, algorithm=name), list(best))
        own = points[tuple(best.values())]
        every = at_best(rows, name, best)
        exact = [row | {"exact": float(row["rank"] == config.true_rank)} for row in every]
        numbers["rank"][name] = first_rounds(exact, "exact", 1.0, "max", config.num_rounds)
        numbers["stays"][name] = [_stays(curve, config) for curve in own.values()]
        numbers["loss"][name] = _excess(own)
        numbers["end"][name] = np.array(scores(own, end)) - config.true_rank
        numbers["error"][name] = np.array(scores(own, judge))
        found: dict[float, list] = {}
        for point, seeds in points.items():
            rates = dict(zip(best, point, strict=True))
            product = float(f"{rates['client_lr'] * rates['server_lr']:.3g}")
            found.setdefault(product, []).append((score(seeds, judge), point, seeds))
        products[name] = {
            product: _excess(seeds)
            for product, (_, _, seeds) in ((at, min(tied)) for at, tied in sorted(found.items()))
            if not any(r["status"].startswith("diverged") for own in seeds.values() for r in own)
        }
        ours, shared = products[_ORDER[0]], products[_ORDER[0]].keys() & products[name].keys()
        leads = [products[name][product] - ours[product] for product in sorted(shared)]
        if leads and name in _ORDER[1:3]:
            numbers["equal"][name] = np.mean(leads, axis=0)
    if _ORDER[-1] in entries:  # the others are judged in a run of their own
        numbers = {name: numbers[name] for name in ("error", "loss", "end")}
    return judged(STATEMENTS, numbers)


def _stays(curve: list[Row], config: Config) -> int:
    """Return the round from which the rank is the true one to the end; the last round if never."""
    wrong = max((row["round"] for row in curve if row["rank"] != config.true_rank), default=-1)
    return min((row["round"] for row in curve if row["round"] > wrong), default=config.num_rounds)


def _excess(seeds: dict[int, list[Row]]) -> np.ndarray:
    """Return the mean over all rounds of log10 of the excess over its optimum, for each seed.

    One number for the whole curve, where rounds to a level depend on the level. Excesses below 1e-5
    of the optimum count as this share: single precision and the pooled solver are no more exact.
    """
    logs = []
    for _, curve in sorted(seeds.items()):
        at, excess = column(curve, "round"), column(curve, "suboptimality")
        least = curve[0]["objective"] - curve[0]["suboptimality"]
        excess = np.maximum(np.where(np.isnan(excess), np.inf, excess), 1e-5 * least)
        logs.append(np.trapezoid(np.log10(excess), at) / (at[-1] - at[0]))
    return np.array(logs)


EXPERIMENT = Sweep(
    title="Low-rank matrix estimation: recovery of a planted matrix",
    problem=lambda config: from_config(
        low_rank, config, shape=(config.side, config.side), seed=config.data_seed
    ),
    penalty=on_kernel(nuclear()),
    panels=(
        Panel("objective", r"objective $F + \psi$", log=True),
        Panel("validation_loss", "mean squared error on validation", log=True),
        Panel("rank", "rank (singular values above 0.01)", whole=True),
        Panel("error_fro", "Frobenius distance to the true matrix", log=True),
    ),
    keys={NonNegative: "cuts"},
    claims=claims,
)
