"""What the paper says about Figure 4."""

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, column, select
from experiments.report.summary import Criterion, curves, first_rounds, score, scores
from experiments.study import Config

# Excesses over the optimum below this share of it count as this share: single precision and the
# pooled solver are no more exact.
_LEAST = 1e-5
_OURS, _OSP, _RIVALS = "fed_dual_avg", "fed_dual_avg_osp", ("fed_mid", "fed_mid_osp")

STATEMENTS = """
Yuan, Zaheer and Reddi (ICML 2021), section 5.2, Figure 4
rank | FedDualAvg has exactly the true rank in fewer than 100 rounds | first round | < 100
later | FedMiD and FedMiD-OSP are slower in rank | further rounds to the true rank | > 0
above | FedMiD and FedMiD-OSP are slower in loss
    | excess over the optimum above FedDualAvg's, in powers of ten, mean over the rounds | > 0
osp rank | FedDualAvg-OSP ends at a low rank | rank beyond the true one | < 1
osp error | FedDualAvg-OSP is far less accurate | its Frobenius error over FedDualAvg's | > 1.5
Expected by us
equal | at equal products of both rates FedMiD and FedMiD-OSP are slower in loss
    | excess over the optimum above FedDualAvg's, in powers of ten, mean over the rounds and the
    products | > 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims at the best rates, and at equal products of rates, paired over the seeds.

    The best client rate is the smallest of any grid, so a method's best point depends on the end of
    its grid. At equal products, the step of a round, each method is shown at its best point for a
    product, and the mean is over the products at which neither diverges.
    """
    entries = summary["algorithms"]
    if _OURS not in entries:
        return []
    least = min(entry["objective"] for entry in summary["optimum"].values())
    judge = Criterion("error_fro", "min", config.criterion_rounds)
    best, ranks, errors, at_products = {}, {}, {}, {}
    for name in (name for name in (_OURS, _OSP, *_RIVALS) if name in entries):
        fields = list(entries[name]["best"])
        points = curves(select(rows, algorithm=name), fields)
        best[name] = points[tuple(entries[name]["best"].values())]
        exact = [
            row | {"exact": float(row["rank"] == config.true_rank)}
            for curve in best[name].values()
            for row in curve
        ]
        ranks[name] = first_rounds(exact, "exact", 1.0, "max", config.num_rounds)
        errors[name] = np.array(scores(best[name], judge))
        found: dict[float, tuple] = {}
        for point, seeds in points.items():
            rates = dict(zip(fields, point, strict=True))
            product = float(f"{rates['client_lr'] * rates['server_lr']:.3g}")
            own = (score(seeds, judge), point)
            found[product] = min(found.get(product, own), own)
        at_products[name] = {product: points[point] for product, (_, point) in found.items()}
    others, equal = [name for name in _RIVALS if name in entries], {}
    for name in others:
        pairs = [
            (seeds, at_products[_OURS][product])
            for product, seeds in sorted(at_products[name].items())
            if product in at_products[_OURS]
        ]
        leads = [
            _excess(a, least) - _excess(b, least) for a, b in pairs if _finite(a) and _finite(b)
        ]
        equal[name] = np.mean(leads, axis=0) if leads else None
    ends = Criterion("rank", "min", config.eval_every)
    numbers = {
        "rank": ranks[_OURS],
        "later": {name: ranks[name] - ranks[_OURS] for name in others},
        "above": {n: _excess(best[n], least) - _excess(best[_OURS], least) for n in others},
        "osp rank": np.array(scores(best[_OSP], ends)) - config.true_rank if _OSP in best else None,
        "osp error": errors[_OSP] / errors[_OURS] if _OSP in best else None,
        "equal": equal,
    }
    return judged(STATEMENTS, numbers)


def _finite(seeds: dict[int, list[Row]]) -> bool:
    return not any(r["status"].startswith("diverged") for curve in seeds.values() for r in curve)


def _excess(seeds: dict[int, list[Row]], least: float) -> np.ndarray:
    """Return the mean over all rounds of log10 of the excess over the optimum, for each seed.

    One number for the whole curve, where rounds to a level depend on the level.
    """
    logs = []
    for _, curve in sorted(seeds.items()):
        at, objective = column(curve, "round"), column(curve, "objective")
        objective[np.isnan(objective)] = np.inf
        log = np.log10(np.maximum(objective - least, _LEAST * least))
        logs.append(np.trapezoid(log, at) / (at[-1] - at[0]))
    return np.array(logs)
