"""Claims of the paper, on every split."""

import math

import numpy as np

from experiments.report.claims import Claim, over_seeds
from experiments.report.rows import Row, Summary
from experiments.studies.kpca.rows import curves, floors, rounds_to
from experiments.study import Config

_SLOPE = 0.15  # how far a slope of -1 may be off


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the paper on every split."""
    found, rounds = [], config.num_rounds
    methods = curves(rows, "methods", "split", "algorithm")
    batches = curves(rows, "batches", "split", "batch_size")
    for floor in (row for row in rows if row["part"] == "floor"):
        split = floor["split"]
        if ours := methods.get((split, "fed_manifold")):
            text = f"{split}: the manifold method's least gradient norm in {rounds} rounds"
            least = min(row["grad_norm"] for row in ours if row["round"] > 0)
            found.append(Claim(text, least, config.tolerance, at_least=False))
        if averaged := methods.get((split, "r_fed_avg")):
            late = min(row["grad_norm"] for row in averaged if row["round"] > rounds / 2)
            text = (
                f"{split}: RFedAvg stalls; its least gradient norm in the second half of the "
                "rounds over half of its predicted floor"
            )
            found.append(Claim(text, late / (floor["grad_norm"] / 2), 1.0))
        sizes = sorted(size for where, size in batches if where == split)
        if len(sizes) > 1:
            text = (
                f"{split}: a larger batch lowers the floor; that of batch {sizes[0]} over that of "
                f"batch {sizes[-1]}"
            )
            small, large = (floors(batches[split, sizes[end]]) for end in (0, -1))
            found.append(over_seeds(text, small / large, 1.0))
    found += _servers(config, rows) + _crowds(rows)
    return [claim._replace(quick=False) for claim in found]


def _servers(config: Config, rows: list[Row]) -> list[Claim]:
    """Return the claim that the rate is 1 / (sqrt(n) tau R eta) with a server step of sqrt(n)."""
    found = []
    by_rate = curves(rows, "servers", "split", "server_lr")
    for split in dict.fromkeys(name for name, _ in by_rate):
        (_, usual), (_, larger) = sorted(
            (rate, curve) for (name, rate), curve in by_rate.items() if name == split
        )
        level = max(config.tolerance, usual[-1]["grad_norm"])
        one, many = (rounds_to(level, curve) for curve in (usual, larger))
        saved = one / many if one and many else math.nan
        found.append(
            Claim(
                f"{split}: a server step of sqrt(n) takes 1 / sqrt(n) of the rounds (those of a "
                "step of 1 to where it ends or to the tolerance over them, over sqrt(n))",
                saved / math.sqrt(config.num_clients), 0.9,
            )
        )  # fmt: skip
    return found


def _crowds(rows: list[Row]) -> list[Claim]:
    by_size = curves(rows, "crowds", "num_clients")
    if len(by_size) < 2:
        return []
    logs = np.log([floors(curve) for curve in by_size.values()])  # [sizes, seeds]
    slopes = np.polyfit(np.log([size for (size,) in by_size]), logs, 1)[0]
    text = "minibatches: the floor of the squared gradient falls as 1 / n (slope in n, {})"
    return [
        over_seeds(text.format("at least as fast"), slopes, -1 + _SLOPE, at_least=False),
        over_seeds(text.format("and no faster"), slopes, -1 - _SLOPE),
    ]
