"""Digits by writer under a constraint: Yuan, Zaheer and Reddi (ICML 2021), appendix B.5."""

from pathlib import Path
from typing import Literal

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.emnist.rows import ALGORITHMS, late_losses, settings, study, summarise
from experiments.studies.shared import Chart, Curve, figure
from experiments.study import Config, Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share

STATEMENTS = """
Expected by us
violation | every model is in its ball | largest excess over the radius, share of it | <= 1e-5
loss | FedDualAvg ends at a smaller training loss than FedMiD | times FedMiD's | < 1
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return our expectations; the paper publishes no results of this experiment.

    In its other experiments FedDualAvg is at least as good as FedMiD, each at its best rates.
    """
    excess, ratios = {}, {}
    for name in config.algorithms:
        own = column(select(rows, part="point", algorithm=name), "violation")
        own = own[np.isfinite(own)]
        excess[name] = own if own.size else np.nan
    if {"fed_dual_avg", "fed_mid"} <= set(config.algorithms):
        for setting in settings(rows):
            dual, primal = (
                late_losses(config, select(rows, part="curve", algorithm=name, **setting))
                for name in ("fed_dual_avg", "fed_mid")
            )
            ratios["{model}, {constraint} ball of {radius:g}".format(**setting)] = dual / primal
    return judged(STATEMENTS, {"violation": excess, "loss": ratios}, quick=True)


MODELS = {
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
        charts = []
        for place in (own for own in settings(rows) if own["constraint"] == constraint):
            drawn = select(rows, part="curve", **place)
            looks = {name: style(name) for name in config.algorithms}
            for measure, label in _LABELS.items():
                curves = [
                    Curve(select(drawn, algorithm=name), measure, colour, text, line)
                    for name, (text, colour, line) in looks.items()
                ]
                # One heading a line, over the middle: three would not fit side by side.
                title = f"{MODELS[place['model']]}, radius {place['radius']:g}"
                title, log = title * (measure == "accuracy"), "y" * (measure == "loss")
                limits = (0, 1.05) if measure == "density" else None
                labels = "communication round", label
                charts.append(Chart("round", labels, curves, title, log, None, limits))
        title = f"{facts['data']}, {facts['clients']} clients, dense kernels in {constraint} balls"
        paths += figure(directory / f"{constraint}.png", title, charts, 3, 2.0)
    return paths


EXPERIMENT = Study(
    title="Digits by writer, every dense kernel in a ball",
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=draw,
    keys={
        Literal[*ALGORITHMS]: "algorithms",
        Literal[*MODELS]: "models",
        Literal["l1", "l2"]: "constraints",
        Count: "num_clients dim cohort_size num_epochs batch_size eval_every criterion_rounds "
        "num_hidden num_features cnn_filters cnn_hidden *.num_rounds",
        Count | None: "point_chunk_size",
        CountOrZero: "seeds data_seed",
        Share: "share_of_writers",
        NonNegative: "cut",
        Positive: "*.client_lr *.server_lr *.radii.l1 *.radii.l2",
        str: "data_dir",
    },
    requires={"data_dir, or models beside cnn": lambda own: own.data_dir or {*own.models} - {"cnn"}}
    | {
        f"{model}.num_rounds that eval_every divides": lambda own, model=model: (
            own[model].num_rounds % own.eval_every == 0
        )
        for model in MODELS
    },
)
