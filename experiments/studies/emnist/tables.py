"""A table of each algorithm at its best rates, for each model, constraint and radius."""

import math

import numpy as np

from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.emnist.rows import MEASURES
from experiments.study import Config

SETTING = ("model", "constraint", "radius")


def settings(rows: list[Row]) -> list[dict]:
    """Return the models, constraints and radii of the run, in order."""
    found = {tuple(row[name] for name in SETTING): None for row in select(rows, part="point")}
    return [dict(zip(SETTING, values, strict=True)) for values in found]


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the facts of the data, and one row per setting and algorithm."""
    table = []
    for setting in settings(rows):
        for name in config.algorithms:
            points = select(rows, part="point", algorithm=name, **setting)
            [best] = [point for point in points if point["best"]]
            curve = select(rows, part="curve", algorithm=name, **setting)
            end = max(column(curve, "round"))
            last = select(curve, round=end)
            failed = sum(not finite(point["score"]) for point in points)
            table.append(
                setting
                | {"algorithm": style(name)[0], "client rate": best["client_lr"]}
                | {"server rate": best["server_lr"], "score": best["score"]}
                | {measure: float(np.mean(column(last, measure))) for measure in MEASURES}
                | {"failed points": f"{failed}/{len(points)}"}
            )
    [facts] = select(rows, part="data")
    return {"data": [{key: facts[key] for key in facts if key != "part"}], "best": table}


def finite(value: float | None) -> bool:
    """Return whether this is a number; rows have ``None`` for what is not finite."""
    return value is not None and math.isfinite(value)
