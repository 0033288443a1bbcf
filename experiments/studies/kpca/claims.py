"""Claims of the paper, on every split."""

import math

import numpy as np

from experiments.report.claims import Claim
from experiments.report.rows import Row, Summary
from experiments.studies.kpca.rows import curves, late_mean_square, rounds_to
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the paper on every split."""
    result = []
    floors = {row["split"]: row["grad_norm"] for row in rows if row["part"] == "floor"}
    methods = curves(rows, "methods", "split", "algorithm")
    for name, floor in floors.items():
        least = {
            algorithm: min(row["grad_norm"] for row in curve if row["round"] > 0)
            for (where, algorithm), curve in methods.items()
            if where == name
        }
        rounds = config.num_rounds
        if "fed_manifold" in least:
            result.append(
                Claim(f"{name}: the manifold method's least gradient norm in {rounds} rounds",
                      least["fed_manifold"], config.tolerance, at_least=False, quick=False)
            )  # fmt: skip
        if "r_fed_avg" in least:
            late = [row["grad_norm"] for row in methods[name, "r_fed_avg"]
                    if row["round"] > rounds / 2]  # fmt: skip
            result.append(
                Claim(f"{name}: RFedAvg stalls; its least gradient norm in the second half of the "
                      "rounds over half of its predicted floor", min(late) / (floor / 2), 1.0,
                      quick=False)
            )  # fmt: skip
        batches = sorted(
            (size, late_mean_square(curve))
            for (where, size), curve in curves(rows, "batches", "split", "batch_size").items()
            if where == name
        )
        if len(batches) > 1:
            result.append(
                Claim(f"{name}: a larger batch lowers the floor; that of batch {batches[0][0]} "
                      f"over that of batch {batches[-1][0]}", batches[0][1] / batches[-1][1], 1.0,
                      quick=False)
            )  # fmt: skip
    return result + _servers(config, rows) + _crowds(rows)


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
                saved / math.sqrt(config.num_clients), 0.9, quick=False,
            )
        )  # fmt: skip
    return found


def _crowds(rows: list[Row]) -> list[Claim]:
    by_size = curves(rows, "crowds", "num_clients")
    if len(by_size) < 2:
        return []
    floors = [late_mean_square(curve) for curve in by_size.values()]
    slope = np.polyfit(np.log([size for (size,) in by_size]), np.log(floors), 1)[0]
    return [
        Claim("minibatches: the floor of the squared gradient is as 1 / n (slope in n, plus 1)",
              abs(float(slope) + 1), 0.15, at_least=False, quick=False)
    ]  # fmt: skip
