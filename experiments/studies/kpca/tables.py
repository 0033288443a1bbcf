"""Tables of the end of each method, and of its cost to the tolerance."""

from collections.abc import Callable

import numpy as np

from experiments.report.rows import Row, Summary
from experiments.study import Config

Curves = dict[tuple, list[Row]]  # rows by the values of some columns


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the end of each method, its cost to the tolerance, and the effects."""
    table = []
    for (name, algorithm), curve in curves(rows, "methods", "split", "algorithm").items():
        there = [row for row in curve if row["grad_norm"] <= config.tolerance]
        entry = {"split": name, "algorithm": algorithm}
        entry |= {key: curve[-1][key] for key in ("round", "grad_norm", "suboptimality", "seconds")}
        first = there[0] if there else {}
        entry |= {
            f"{key}_to_tolerance": first.get(key) for key in ("round", "floats_up", "seconds")
        }
        table.append(entry)
    return {
        "methods": table,
        "steps": _ends(rows, "steps", "num_steps", grad_norm=lambda own: own[-1]["grad_norm"]),
        "batches": _ends(rows, "batches", "batch_size", floor=late_mean_square),
        "servers": _ends(
            rows, "servers", "server_lr",
            rounds_to_tolerance=lambda own: rounds_to(config.tolerance, own),
        ),
        "crowds": [
            {"num_clients": size, "floor": late_mean_square(curve)}
            for (size,), curve in curves(rows, "crowds", "num_clients").items()
        ],
        "floors": [row for row in rows if row["part"] == "floor"],
    }  # fmt: skip


def _ends(rows: list[Row], part: str, field: str, **ends: Callable) -> list[Row]:
    """Return a measure of each curve of a part, by split and one column."""
    return [
        {"split": split, field: value} | {name: end(curve) for name, end in ends.items()}
        for (split, value), curve in curves(rows, part, "split", field).items()
    ]


def curves(rows: list[Row], part: str, *fields: str) -> Curves:
    """Return the rows of one part, grouped by columns, in the order of the run."""
    result: Curves = {}
    for row in rows:
        if row["part"] == part:
            result.setdefault(tuple(row[field] for field in fields), []).append(row)
    return result


def rounds_to(level: float, curve: list[Row]) -> int | None:
    """Return the first round whose gradient norm is at most ``level``."""
    return next((row["round"] for row in curve if row["grad_norm"] <= level), None)


def late_mean_square(curve: list[Row]) -> float:
    """Return the mean squared gradient norm over the second half of the rounds."""
    last = max(row["round"] for row in curve)
    return float(np.mean([row["grad_norm"] ** 2 for row in curve if row["round"] > last / 2]))
