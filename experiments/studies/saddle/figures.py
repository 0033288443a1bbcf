"""Figures of gap and structure over the rounds."""

from pathlib import Path

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.saddle.methods import METHODS
from experiments.study import Config

_LABELS = {
    "gap": "duality gap",
    "density": "share of nonzero entries",
    "rank_x": "rank of X",
    "rank_y": "rank of Y",
}


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw one figure per case, with a row of panels for each number of local steps."""
    return [_draw(config, rows, case, directory / f"{case}.png") for case in config.cases]


def _draw(config: Config, rows: list[Row], case: str, path: Path) -> Path:
    own, curves = config[case], select(rows, part="curve", case=case)
    measures = ("gap", "rank_x", "rank_y") if own.num_columns else ("gap", "density")
    figure, panels = axes.panels(len(measures), len(own.num_steps), height=2.6)
    for line, num_steps in enumerate(own.num_steps):
        for at, measure in enumerate(measures):
            axis = panels[line * len(measures) + at]
            for name in own.methods:
                method, seeds = METHODS[name], select(curves, method=name, num_steps=num_steps)
                colour, text = style(method.key)[1], method.text
                axes.seeds(axis, seeds, "round", measure, method.line, color=colour, label=text)
            log = "y" if measure == "gap" else ""
            title = f"K = {num_steps}"
            axes.describe(axis, "communication round", _LABELS[measure], title=title, log=log)
    title = f"At each method's best rates (range of {len(config.seeds)} seeds)"
    return axes.finish(figure, path, title, 2)
