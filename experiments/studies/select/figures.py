"""The path with the curve of validation, the folds, and the coefficients by name."""

import numpy as np

from experiments.report import axes
from experiments.report.rows import column, select

_MOST_NAMES = 25


def draw(config, rows, summary, directory):
    """Three figures; the folds only if there are several."""
    drawn = [_draw_path(rows, directory / "path.png"), _draw_model(rows, directory)]
    if len({row["fold"] for row in select(rows, part="fold")}) > 1:
        drawn.append(_draw_folds(rows, directory / "sites.png"))
    return drawn


def _draw_path(rows, path):
    seen = select(rows, part="path")
    strengths, kernels = column(seen, "strength"), np.array([row["kernel"] for row in seen])
    names = [row["name"] for row in select(rows, part="coefficient")][1:]
    figure, (left, right) = axes.panels(2, height=3.0)
    chosen = next(row for row in seen if row["chosen"])
    kept = np.flatnonzero(chosen["kernel"])
    for index in np.flatnonzero(np.any(kernels != 0, axis=0)):
        grey = index not in kept
        left.plot(strengths, kernels[:, index], color="0.75" if grey else None, linewidth=1)
    for index in sorted(kept, key=lambda i: -abs(chosen["kernel"][i]))[:6]:
        at_end = strengths[-1], kernels[-1, index]
        left.annotate(names[index], at_end, fontsize=6.5, xytext=(3, 0), textcoords="offset points")
    errors = np.nan_to_num(column(seen, "error"))
    right.errorbar(
        strengths, column(seen, "score"), errors, fmt="o-", markersize=2.5, capsize=2, linewidth=1,
        color="#0072B2",
    )  # fmt: skip
    best = next(row for row in seen if row["best"])
    for axis in (left, right):
        axis.axvline(best["strength"], color="0.6", linestyle=":", label="least score")
        axis.axvline(chosen["strength"], color="0.2", linestyle="--", label="chosen")
    axes.describe(left, "strength", "coefficient", log="x")
    axes.describe(right, "strength", seen[0]["by"], log="x")
    for axis in (left, right):
        axis.invert_xaxis()
    return axes.finish(figure, path, "Coefficients and scores along the path")


def _draw_folds(rows, path):
    folds = select(rows, part="fold")
    names = list(dict.fromkeys(row["fold"] for row in folds))
    figure, (axis,) = axes.panels(1, height=3.0)
    for name, colour in zip(names, axes.shades(len(names)), strict=True):
        seen = select(folds, fold=name)
        axis.plot(
            column(seen, "strength"), column(seen, "score"), ".", color=colour, linestyle="-",
            linewidth=1, markersize=3, label=name,
        )  # fmt: skip
    axes.describe(axis, "strength", "loss on the fold held out", log="x")
    axis.invert_xaxis()
    return axes.finish(figure, path, "What each fold says", 4)


def _draw_model(rows, directory):
    found = [row for row in select(rows, part="coefficient")[1:] if row["value"] != 0]
    found = sorted(found, key=lambda row: abs(row["value"]))[-_MOST_NAMES:]
    figure, (axis,) = axes.panels(1, height=max(1.5, 0.2 * len(found) + 0.8))
    places = np.arange(len(found))
    axis.barh(places, column(found, "value"), color="#0072B2", label="chosen model")
    axis.plot(column(found, "refit"), places, "|", color="#D55E00", markersize=9, label="refit")
    axis.set_yticks(places, [row["name"] for row in found])
    axis.axvline(0, color="0.5", linewidth=0.7)
    axes.describe(axis, "coefficient of the scaled feature", "")
    return axes.finish(figure, directory / "coefficients.png", "The chosen model by name")
