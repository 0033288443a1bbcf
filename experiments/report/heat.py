"""Maps of a score over two hyperparameters, one per algorithm, on one colour scale."""

import math
import os
from collections.abc import Mapping, Sequence

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from experiments.report.plots import style
from experiments.report.rows import Row
from experiments.report.summary import Criterion, curves, score


def score_table(
    rows: Sequence[Row], fields: Sequence[str], criterion: Criterion, along: tuple[str, str]
) -> tuple[np.ndarray, list[float], list[float]]:
    """The best score at each pair of values of two fields, over all other fields.

    Returns:
      The scores with axes [first field, second field], NaN for points that failed or did not reach
      the last round, and the values of both fields.
    """
    end = max(row["round"] for row in rows)
    places = [fields.index(field) for field in along]
    firsts, seconds = (sorted({row[field] for row in rows}) for field in along)
    table = np.full((len(firsts), len(seconds)), np.nan)
    better = np.fmax if criterion.goal == "max" else np.fmin
    for point, seeds in curves(rows, fields).items():
        first, second = (point[place] for place in places)
        finished = all(curve[-1]["round"] == end for curve in seeds.values())
        value = score(seeds, criterion) if finished else math.nan
        cell = firsts.index(first), seconds.index(second)
        table[cell] = better(table[cell], value if math.isfinite(value) else math.nan)
    return table, firsts, seconds


def maps(
    path: os.PathLike,
    rows: Mapping[str, Sequence[Row]],
    fields: Mapping[str, Sequence[str]],
    criterion: Criterion,
    along: tuple[str, str] = ("client_lr", "server_lr"),
) -> None:
    """Draws one map per algorithm; a cross marks the best point, hatching the failed ones."""
    tables = {
        label: score_table(rows[label], fields[label], criterion, along)
        for label in rows
        if all(len({row.get(field) for row in rows[label]} - {None}) > 1 for field in along)
    }
    if not tables:
        return
    columns = min(2, len(tables))
    lines = -(-len(tables) // columns)
    figure, grid = plt.subplots(
        lines, columns, figsize=(3.3 * columns + 0.6, 2.9 * lines), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    finite = np.concatenate([table[np.isfinite(table)] for table, _, _ in tables.values()])
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    shown = None
    for axis, (label, (table, firsts, seconds)) in zip(grid.flat, tables.items(), strict=False):
        axis.patch.set(edgecolor="#999999", hatch="////")  # visible where there is no score
        shown = axis.imshow(
            np.ma.masked_invalid(table), origin="lower", aspect="auto", vmin=low, vmax=high,
            cmap="cividis" if criterion.goal == "max" else "cividis_r",
        )  # fmt: skip
        axis.set_title(style(label)[0], fontsize=9)
        axis.set_xticks(range(len(seconds)), [f"{value:g}" for value in seconds], fontsize=7.5)
        axis.set_yticks(range(len(firsts)), [f"{value:g}" for value in firsts], fontsize=7.5)
        axis.set_xlabel(along[1].replace("_lr", " rate"), fontsize=8)
        axis.set_ylabel(along[0].replace("_lr", " rate"), fontsize=8)
        if np.isfinite(table).any():
            best = np.nanargmax(table if criterion.goal == "max" else -table)
            row, column = np.unravel_index(best, table.shape)
            axis.plot(column, row, "x", color="#D55E00", markersize=8, markeredgewidth=2)
    for unused in grid.flat[len(tables) :]:
        unused.set_visible(False)
    assert shown is not None
    bar = figure.colorbar(shown, ax=grid, shrink=0.8)
    rounds = f"mean of the last {criterion.last_rounds} rounds"
    bar.set_label(f"{criterion.measure}, {rounds}", fontsize=8)
    bar.ax.tick_params(labelsize=7.5)
    figure.savefig(path, dpi=150)
    plt.close(figure)
