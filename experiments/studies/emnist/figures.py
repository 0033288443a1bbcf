"""Loss, accuracy and density over the rounds, with one figure for each constraint."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.emnist.rows import settings
from experiments.study import Config

_TITLES = {
    "softmax": "softmax regression",
    "klr": "random features",
    "qlr": "quadratic features",
    "mlp": "two-layer network",
    "cnn": "CNN",
}
_LABELS = {
    "loss": "training loss",
    "accuracy": "accuracy on validation",
    "density": "density of dense kernels",
}


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw one figure per constraint: a line per model and radius, a column per measure."""
    [facts] = summary["data"]
    paths = []
    for constraint in config.constraints:
        lines = [line for line in settings(rows) if line["constraint"] == constraint]
        figure, panels = axes.panels(len(_LABELS), len(lines), height=2.0)
        for line, setting in enumerate(lines):
            _draw_line(config, rows, setting, panels[3 * line : 3 * line + 3])
        title = f"{facts['data']}, {facts['clients']} clients, dense kernels in {constraint} balls"
        paths.append(axes.finish(figure, directory / f"{constraint}.png", title, 4))
    return paths


def _draw_line(config: Config, rows: list[Row], setting: Row, panels: Sequence[Axes]) -> None:
    for name in config.algorithms:
        text, colour, line = style(name)
        own = select(rows, part="curve", algorithm=name, **setting)
        for axis, measure in zip(panels, _LABELS, strict=True):
            axes.seeds(axis, own, "round", measure, line, color=colour, label=text)
    # One heading a line, over the middle: three would not fit side by side.
    heading = f"{_TITLES[setting['model']]}, radius {setting['radius']:g}"
    for axis, measure in zip(panels, _LABELS, strict=True):
        title, log = heading if axis is panels[1] else "", "y" if measure == "loss" else ""
        axes.describe(axis, "communication round", _LABELS[measure], title=title, log=log)
        if measure == "density":
            axis.set_ylim(0, 1.05)
