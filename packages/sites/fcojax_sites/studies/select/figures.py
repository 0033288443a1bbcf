"""Figures of the path with its losses, of the folds, and of the named coefficients."""

from pathlib import Path

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes

from fcojax.experiments import Config, Row, Summary, axes, column, select
from fcojax_sites.studies.select.rows import best_and_chosen, shown

_MOST_BARS = 25
_MOST_NAMED = 8  # the number of curves with distinct colours
_STRENGTH = "strength of the penalty, weaker to the right"


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw path, coefficients and, if there are several, folds."""
    if select(rows, part="judged"):  # a study over sites, whose page is to fit on two sheets
        choice = _draw_path(rows, directory / "choice.png", height=1.5)
        if not select(rows, part="estimate"):  # a separated outcome
            return [choice]
        return [choice, _draw_effects(rows, directory / "effects.png")]
    drawn = [_draw_path(rows, directory / "path.png"), _draw_model(rows, directory)]
    if len({row["fold"] for row in select(rows, part="fold")}) > 1:
        drawn.append(_draw_folds(rows, directory / "sites.png"))
    return drawn


def _draw_path(rows: list[Row], path: Path, height: float = 3.0) -> Path:
    path_rows, best, chosen = best_and_chosen(rows)
    figure, (left, right) = axes.panels(2, height=height)
    names = [row["name"] for row in select(rows, part="coefficient")][1:]
    _draw_coefficients(left, path_rows, chosen["kernel"], names)
    errors = np.nan_to_num(column(path_rows, "error"))
    right.errorbar(
        column(path_rows, "strength"),
        column(path_rows, "score"),
        errors,
        fmt="o-",
        markersize=2.5,
        capsize=2,
        linewidth=1,
        color="#0072B2",
    )
    if chosen["index"] != best["index"]:
        right.axhline(best["score"], color="#D55E00", linewidth=1)
    for axis in (left, right):
        _mark(axis, best, chosen)
        axis.invert_xaxis()
    axes.describe(left, _STRENGTH, "coefficient", log="x")
    axes.describe(right, _STRENGTH, best["by"], log="x")
    return axes.finish(figure, path, "Coefficients and loss along the path")


def _draw_coefficients(
    axis: Axes, path_rows: list[Row], chosen: list[float], names: list[str]
) -> None:
    """Draw the largest coefficients of the choice in colour with names, the others in grey."""
    strengths = column(path_rows, "strength")
    kernels = np.array([row["kernel"] for row in path_rows])
    kept = sorted(np.flatnonzero(chosen), key=lambda index: -abs(chosen[index]))
    for index in set(np.flatnonzero(np.any(kernels != 0, axis=0))) - set(kept[:_MOST_NAMED]):
        grey = "0.6" if index in kept else "0.85"
        axis.plot(strengths, kernels[:, index], color=grey, linewidth=0.8, zorder=1)
    for index in kept[:_MOST_NAMED]:
        axis.plot(strengths, kernels[:, index], linewidth=1.2)
    ends = [(names[index], kernels[-1, index]) for index in kept[:_MOST_NAMED]]
    _name_ends(axis, strengths[-1], ends)


def _name_ends(axis: Axes, last: float, ends: list[tuple[str, float]]) -> None:
    """Write names beside the ends of curves, in the curves' order and colours."""
    low, high = axis.get_ylim()
    order = np.argsort([value for _, value in ends], kind="stable")
    heights = _spread_out(np.array([ends[index][1] for index in order]), 0.052 * (high - low))
    for index, height in zip(order, heights, strict=True):
        axis.annotate(
            axes.literal(ends[index][0]),
            (last, height),
            fontsize="small",
            color=f"C{index}",
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            annotation_clip=False,
        )


def _spread_out(heights: np.ndarray, gap: float) -> np.ndarray:
    """Return the ascending heights nearest to the given ones that are at least ``gap`` apart."""
    steps = gap * np.arange(len(heights))
    # Isotonic least squares: adjacent runs that overlap take the mean of their shifts.
    runs: list[list[float]] = []
    for value in heights - steps:
        runs.append([value])
        while len(runs) > 1 and np.mean(runs[-2]) > np.mean(runs[-1]):
            runs[-2:] = [runs[-2] + runs[-1]]
    return np.concatenate([np.full(len(run), np.mean(run)) for run in runs] or [heights]) + steps


def _mark(axis: Axes, best: Row, chosen: Row) -> None:
    axis.axvline(best["strength"], color="0.6", linestyle=":", label="lowest")
    axis.axvline(chosen["strength"], color="0.2", linestyle="--", label="chosen")


def _draw_folds(rows: list[Row], path: Path) -> Path:
    folds, (path_rows, best, chosen) = select(rows, part="fold"), best_and_chosen(rows)
    strengths = column(path_rows, "strength")
    scores = {
        name: column(select(folds, fold=name), "score").reshape(-1, len(strengths)).mean(axis=0)
        for name in dict.fromkeys(row["fold"] for row in folds)
    }
    worst = sorted(scores, key=lambda name: -scores[name][chosen["index"]])
    figure, (axis,) = axes.panels(1, height=3.0)
    for name in worst[_MOST_NAMED:]:
        axis.plot(strengths, scores[name], color="0.8", linewidth=0.8, zorder=1)
    for name in worst[:_MOST_NAMED]:
        axis.plot(strengths, scores[name], ".-", linewidth=1, markersize=3)
    _name_ends(axis, strengths[-1], [(name, scores[name][-1]) for name in worst[:_MOST_NAMED]])
    _mark(axis, best, chosen)
    axes.describe(axis, _STRENGTH, "loss on left-out data", log="x")
    axis.invert_xaxis()
    return axes.finish(figure, path, "The loss on each part that was left out")


def _draw_effects(rows: list[Row], path: Path) -> Path:
    """Draw the effects with their intervals, and survival or calibration of each site."""
    found, survival = shown(select(rows, part="estimate"))[::-1], select(rows, part="survival")
    judged = [row for row in select(rows, part="judged") if "cases" in row]
    figure, (left, *rest) = axes.panels(
        2 if survival or judged else 1, height=max(1.5, 0.14 * len(found) + 0.4)
    )
    for place, row in enumerate(found):
        colour = "#0072B2" if row["chosen"] else "0.6"
        left.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=1.2)
        left.plot(row["value"], place, "s", color=colour, markersize=4)
    left.set_yticks(range(len(found)), [axes.literal(_named(row)) for row in found])
    is_ratio = found[0]["what"] != "difference"
    left.axvline(1 if is_ratio else 0, color="0.5", linewidth=0.7)
    axes.describe(left, found[0]["what"], "", log="x" if is_ratio else "")
    low, high = left.get_xlim()
    if is_ratio and high / low < 100:  # over more decades they would cover one another
        left.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        left.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        left.xaxis.set_minor_formatter(ticker.NullFormatter())
    for axis in rest:
        for row in survival:
            axis.step(
                [0, *row["time"]],
                [1, *row["survival"]],
                where="post",
                linewidth=1.2,
                label=axes.literal(row["site"]),
            )
        if survival:
            axis.set_ylim(0, 1.02)
            axes.describe(axis, "time", "without the event")
            continue
        axis.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
        for row in judged:
            kept, number = column([row], "rows")[0] > 0, np.maximum(row["rows"], 1)
            axis.plot(
                np.array(row["predicted"])[kept] / number[kept],
                np.array(row["cases"])[kept] / number[kept],
                "o-",
                linewidth=1,
                markersize=4,
                label=axes.literal(row["site"]),
            )
        axes.describe(axis, "predicted chance, without the site", "share of cases")
    return axes.finish(figure, path, "Effects of the features, and each site")


def _named(row: Row) -> str:
    return row["name"] if row["per"] == 1 else f"{row['name']}, per {row['per']:g}"


def _draw_model(rows: list[Row], directory: Path) -> Path:
    found = [row for row in select(rows, part="coefficient")[1:] if row["value"] != 0]
    found = sorted(found, key=lambda row: abs(row["value"]))[-_MOST_BARS:]
    figure, (axis,) = axes.panels(1, height=max(1.5, 0.2 * len(found) + 0.8))
    places = np.arange(len(found))
    axis.set_axisbelow(True)
    axis.barh(places, column(found, "value"), color="#0072B2", label="chosen model")
    axis.plot(
        column(found, "refit"),
        places,
        "d",
        color="#D55E00",
        markersize=4,
        label="the same features without the penalty",
    )
    axis.set_yticks(places, [axes.literal(row["name"]) for row in found])
    axis.axvline(0, color="0.5", linewidth=0.7)
    axes.describe(axis, "coefficient of the scaled feature", "")
    return axes.finish(figure, directory / "coefficients.png", "The chosen model by name")
