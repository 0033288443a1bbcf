"""Figures of the limits, and of the curves at tuned rates."""

import textwrap
from pathlib import Path

import numpy as np
from matplotlib.ticker import LogLocator

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.studies.compare.methods import METHODS
from experiments.study import Config

# Methods that are drawn together, with the reference in each group: few enough to tell apart.
_REFERENCE = "prox_gd"
_GROUPS = {
    "dual averaging, tracking": ("fed_dual_avg", "dual_tracking", "composite_fl", "normal_map"),
    "control variates": ("scaffold", "feedback", "fast_scaffold", "mime", "prox_skip"),
    "splitting": ("fed_dr_over", "fed_dr_gd", "fed_admm", "fed_pd_gd", "fed_dyn"),
    "half of the clients": ("composite_fl_half", "prox_skip_half", "fed_dyn_half"),
}
_TITLES = {
    "own": "own Hessians",
    "shared": "shared Hessians",
    "own_groups": "own Hessians,\ngroups",
    "shared_groups": "shared Hessians,\ngroups",
}


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the limits, and the curves at tuned rates over rounds and over floats."""
    return [
        _draw_limits(config, rows, directory / "limits.png"),
        _draw_curves(config, rows, directory / "curves.png", "round", "communication round"),
        _draw_curves(config, rows, directory / "floats.png", "floats", "floats sent, both ways"),
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
        axes.describe(axis, "", "", title=_TITLES[problem], log="x")
        axis.xaxis.set_major_locator(LogLocator(numticks=3))
        axis.minorticks_off()
        axis.set_yticks(-np.arange(len(texts)), shown)
        axis.set_ylim(-len(texts), 1)
    title = f"Relative distance to the optimum after {config.limit_rounds} rounds"
    return axes.finish(figure, path, title, 2)


def _draw_curves(config: Config, rows: list[Row], path: Path, across: str, text: str) -> Path:
    """Draw a column of panels for each group, and a line of panels for each problem."""
    groups = {
        title: [name for name in (_REFERENCE, *names) if name in config.methods]
        for title, names in _GROUPS.items()
    }
    groups = {title: names for title, names in groups.items() if {*names} - {_REFERENCE}}
    figure, panels = axes.panels(len(groups), len(config.problems), height=2.1)
    for line, problem in enumerate(config.problems):
        for place, (title, names) in enumerate(groups.items()):
            axis = panels[line * len(groups) + place]
            # From wide to narrow, so that lines that coincide stay visible.
            for name, width in zip(names, np.linspace(2.2, 1.0, len(names)), strict=True):
                method = METHODS[name]
                seeds = by_seed(select(rows, part="curve", problem=problem, method=name)).values()
                x = np.mean([column(one, across) for one in seeds], axis=0)
                distances = np.maximum([column(one, "distance") for one in seeds], 1e-12)
                colour = style(method.key)[1]
                look = {"color": colour, "label": method.text, "linewidth": width}
                axes.band(axis, x, distances, method.line, **look)
            axis.axhline(config.tolerance, color="#555555", linestyle=":", linewidth=0.8)
            last = line == len(config.problems) - 1
            above = title if line == 0 else ""
            axes.describe(axis, text if last else "", "", title=above, log="xy")
            axis.set_ylim(1e-9, 30)
            if place == 0:
                axis.set_ylabel(_TITLES[problem])
            else:
                axis.set_yticklabels([])
            if last:
                handles, labels = axis.get_legend_handles_labels()
                labels = [label.removesuffix(", half the clients") for label in labels]
                labels = [textwrap.fill(label, 24) for label in labels]
                below = {"loc": "upper left", "bbox_to_anchor": (-0.3, -0.36)}
                axis.legend(handles, labels, handlelength=1.6, fontsize="small", **below)
    title = "Relative distance to the optimum at each method's best rates"
    axes.head(figure, f"{title} (range of {len(config.seeds)} seeds)")
    return axes.save(figure, path)
