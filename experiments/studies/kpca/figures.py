"""Figures of the methods over rounds, floats and seconds, and of the effects of the settings."""

import itertools
from pathlib import Path

from experiments.report.axes import shaded
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.kpca.rows import EFFECTS, curves, late_mean_square
from experiments.studies.shared import Chart, Curve, figure
from experiments.study import Config

_OVER = {
    "round": "communication round",
    "floats_up": "floats sent by a client",
    "seconds": "seconds, compilation excluded",
}
_MEASURES = {"grad_norm": "norm of the Riemannian gradient", "suboptimality": "$F - F^*$"}


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw, for each split, the methods over rounds, floats and seconds, and the effects."""
    paths = []
    for floor in select(rows, part="floor"):
        own, name = select(rows, split=floor["split"]), floor["split"]
        looks = [
            (curve, style(key)) for (key,), curve in curves(own, "methods", "algorithm").items()
        ]
        level, charts = (floor["grad_norm"], "predicted floor of RFedAvg"), []
        for (measure, up), (over, across) in itertools.product(_MEASURES.items(), _OVER.items()):
            drawn = [Curve(own, measure, colour, text, line) for own, (text, colour, line) in looks]
            beside = level if measure == "grad_norm" else None
            charts.append(Chart(over, (across, up), drawn, "", "y", beside))
        title = f"Principal components, {name}: {config.num_steps} local steps, full batches"
        slug = name.replace(" ", "_")
        paths += figure(directory / f"methods_{slug}.png", title, charts, columns=3)
        if select(own, part="steps"):
            charts, title = _effects(config, own), f"The manifold method, {name}"
            columns = 2 if len(charts) == 4 else 3
            paths += figure(directory / f"effects_{slug}.png", title, charts, columns)
    return paths


def _effects(config: Config, rows: list[Row]) -> list[Chart]:
    """Return charts of local steps, batches, the server's step and the number of clients.

    Each parameter has its own colours.
    """
    looks = {
        "steps": ("{} local steps", "Blues_r", "full batches"),
        "batches": ("batch {}", "Oranges_r", f"minibatches, {config.num_steps} local steps"),
        "servers": (
            r"$\eta_g = {:.3g}$",
            "Greens_r",
            rf"full batches, $\eta = {config.server_relative_lr:g} / L$",
        ),
    }
    labels, charts = (_OVER["round"], _MEASURES["grad_norm"]), []
    for part, (text, colours, title) in looks.items():
        shown = shaded(curves(rows, part, EFFECTS[part]).items(), colours)
        drawn = [Curve(own, "grad_norm", colour, text.format(*at)) for (at, own), colour in shown]
        charts.append(Chart("round", labels, drawn, title, "y"))
    if by_size := curves(rows, "crowds", "num_clients"):
        points = [{"share": 1 / n, "floor": late_mean_square(own)} for (n,), own in by_size.items()]
        slope = points[0]["floor"] / points[0]["share"]
        line = [row | {"floor": slope * row["share"]} for row in points]
        drawn = [
            Curve(points, "floor", "#000000", "late mean of its square", "o"),
            Curve(line, "floor", "#555555", "as $1 / n$", ":"),
        ]
        labels = "one over the number of clients, $1 / n$", "squared gradient norm"
        charts.append(Chart("share", labels, drawn, f"minibatches of {config.crowd_batch}"))
    return charts
