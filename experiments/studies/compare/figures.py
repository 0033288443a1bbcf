"""Figures of the limits, and of the curves at tuned rates."""

from pathlib import Path

import numpy as np

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.studies.compare.methods import METHODS
from experiments.studies.compare.problem import methods_for
from experiments.study import Config

_TITLES = {
    "own": "own Hessians",
    "shared": "shared, ill-conditioned Hessians",
    "own_groups": "own Hessians, groups",
    "shared_groups": "shared, ill-conditioned Hessians, groups",
}


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the limits, and the curves at tuned rates."""
    return [
        _draw_limits(config, rows, directory / "limits.png"),
        _draw_curves(config, rows, directory / "curves.png"),
    ]


def _draw_limits(config: Config, rows: list[Row], path: Path) -> Path:
    figure, panels = axes.panels(len(config.problems), height=1.0 + 0.16 * len(config.methods))
    for axis, problem in zip(panels, config.problems, strict=True):
        for share, marker in ((1.0, "o"), (0.5, "<")):
            limits = select(rows, part="limit", problem=problem, step_share=share)
            for row in limits:
                line = list(config.methods).index(row["method"])
                colour = style(METHODS[row["method"]].key)[1]
                axis.plot(row["distance"], -line, marker, color=colour, markersize=5)
            axis.plot([], [], marker, color="#555555", label=f"{share:g} of the safe step")
        texts = [METHODS[name].text for name in config.methods]
        shown = texts if problem == config.problems[0] else [""] * len(texts)
        axes.describe(axis, "relative distance to the optimum", "", title=_TITLES[problem], log="x")
        axis.set_yticks(-np.arange(len(texts)), shown, fontsize=7.5)
    return axes.finish(figure, path, f"Limits after {config.limit_rounds} rounds", 2)


def _draw_curves(config: Config, rows: list[Row], path: Path) -> Path:
    figure, panels = axes.panels(2, len(config.problems), height=2.6)
    for line, problem in enumerate(config.problems):
        both = tuple(zip(panels[2 * line : 2 * line + 2], ("round", "floats"), strict=True))
        for name in (name for name in methods_for(config, problem) if METHODS[name].line):
            method = METHODS[name]
            seeds = by_seed(select(rows, part="curve", problem=problem, method=name)).values()
            distances = np.array([column(one, "distance") for one in seeds])
            for axis, across in both:
                x = np.mean([column(one, across) for one in seeds], axis=0)
                axes.band(
                    axis,
                    x,
                    np.maximum(distances, 1e-12),
                    method.line,
                    color=style(method.key)[1],
                    label=method.text,
                )
        for axis, across in both:
            axis.axhline(config.tolerance, color="#555555", linestyle=":", linewidth=0.8)
            text = {"round": "communication round", "floats": "floats sent, both ways"}[across]
            axes.describe(axis, text, "relative distance", title=_TITLES[problem], log="xy")
            axis.set_ylim(1e-9, 30)
    title = f"At each method's best rates (range of {len(config.seeds)} seeds)"
    return axes.finish(figure, path, title, 3)
