"""Figures of the limits, and of the curves at tuned rates."""

import itertools
from pathlib import Path

import numpy as np
from matplotlib.ticker import LogLocator

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.compare.methods import METHODS
from experiments.studies.shared import Chart, Curve, figure
from experiments.study import Config

# Methods that are drawn together, with the reference in each group: few enough to tell apart.
_GROUPS = {
    "dual averaging, tracking": "fed_dual_avg dual_tracking composite_fl normal_map",
    "control variates": "scaffold feedback fast_scaffold mime prox_skip",
    "splitting": "fed_dr_over fed_dr_gd fed_admm fed_pd_gd fed_dyn",
    "half of the clients": "composite_fl_half prox_skip_half fed_dyn_half",
}


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the limits, and the curves at tuned rates: lines for problems, columns for groups."""
    charts, curves = [], select(rows, part="curve")
    for problem, (title, names) in itertools.product(config.problems, _GROUPS.items()):
        shown = [name for name in ("prox_gd", *names.split()) if name in config.methods]
        drawn = [
            Curve(
                select(curves, problem=problem, method=name),
                "distance",
                style(METHODS[name].name)[1],
                METHODS[name].text.removesuffix(", half the clients"),
                line,
            )
            for name, line in zip(shown, itertools.cycle(("-", "--", ":", "-.")), strict=False)
        ]
        labels = "communication round", _title(problem)
        level = config.tolerance, "tolerance"
        charts.append(Chart("round", labels, drawn, title, "xy", level, (1e-9, 30)))
    title = "Relative distance to the optimum at each method's best rates"
    title += f" (range of {len(config.seeds)} seeds)"
    path = directory / "curves.png"
    return [
        _draw_limits(config, rows, directory / "limits.png"),
        *figure(path, title, charts, len(_GROUPS), height=2.1),
    ]


def _draw_limits(config: Config, rows: list[Row], path: Path) -> Path:
    drawn, panels = axes.panels(len(config.problems), height=1.0 + 0.16 * len(config.methods))
    for axis, problem in zip(panels, config.problems, strict=True):
        for share, marker in ((1.0, "o"), (0.5, "<")):
            for line, name in enumerate(config.methods):
                own = select(rows, part="limit", problem=problem, step_share=share, method=name)
                colour = style(METHODS[name].name)[1]
                axis.plot(own[0]["distance"], -line, marker, color=colour, markersize=5)
            axis.plot([], [], marker, color="#555555", label=f"{share:g} of the safe step")
        axes.describe(axis, "", "", title=_title(problem), log="x")
        axis.xaxis.set_major_locator(LogLocator(numticks=3))
        axis.minorticks_off()
        texts = [METHODS[name].text * (axis is panels[0]) for name in config.methods]
        axis.set_yticks(-np.arange(len(texts)), texts)
        axis.set_ylim(-len(texts), 1)
    title = f"Relative distance to the optimum after {config.limit_rounds} rounds"
    return axes.finish(drawn, path, title, 2)


def _title(problem: str) -> str:
    kind, _, groups = problem.partition("_")
    return f"{kind} Hessians" + ",\ngroups" * bool(groups)
