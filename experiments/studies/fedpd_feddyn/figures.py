"""Figures of the gap between the methods, and of the costs of skipping and sampling."""

from pathlib import Path

import numpy as np

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.fedpd_feddyn.rows import (
    MATCHING,
    OFFSET,
    OTHER_START,
    floor_of,
    rounds_of,
)
from experiments.study import Config


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw both figures."""
    return [
        _draw_pair(config, rows, directory / "pair.png"),
        _draw_costs(config, rows, directory / "costs.png"),
    ]


def _draw_pair(config: Config, rows: list[Row], path: Path) -> Path:
    figure, (gap, error) = axes.panels(2, height=2.8)
    for name, colour in axes.shaded(MATCHING):
        own = select(rows, part="gap", start=name, solver="gd")
        label = f"matching: {name}"
        axes.curve(gap, own, "round", "gap", color=colour, linewidth=1, label=label)
    for name, colour in ((OFFSET, "#D55E00"), (OTHER_START, "#E69F00")):
        own = select(rows, part="gap", start=name, solver="gd")
        axes.curve(gap, own, "round", "gap", "--", color=colour, label=name)
    gap.axhline(1e-12, color="#555555", linestyle=":", label="tolerance")
    axes.describe(gap, "communication round", "largest gap of the two models", log="y")
    own = select(rows, part="gap", start=OFFSET, solver="gd")
    for measure in ("fed_pd", "fed_dyn"):
        name, colour, line = style(measure)
        label = f"{name}, {OFFSET}" if measure == "fed_dyn" else name
        axes.curve(error, own, "round", measure, line, color=colour, linewidth=1.6, label=label)
    label = "FedDyn's distance to its predicted limit"
    axes.curve(error, own, "round", "from_predicted", ":", color="#000000", label=label)
    axes.describe(error, "communication round", "relative error of the model", log="y")
    return axes.finish(figure, path, "FedPD and FedDyn from matching and other starts", 2)


def _draw_costs(config: Config, rows: list[Row], path: Path) -> Path:
    figure, (floor, rounds) = axes.panels(2, height=3.0)
    skips = [p for p in config.skip_probabilities if p > 0]
    for eta, colour in axes.shaded(config.skip_prox_steps):
        lines = np.array([floor_of(rows, eta, p) for p in skips]).T
        label = rf"FedPD, $\eta = {eta:g}$"
        axes.band(floor, skips, lines, "o-", color=colour, markersize=3, label=label)
    axes.describe(floor, "probability of skipping an exchange", "floor of the error", log="y")
    rates = [size / config.num_clients for size in config.cohort_sizes]
    for eta, colour in axes.shaded(config.cohort_prox_steps):
        lines = np.array([rounds_of(config, rows, eta, size) for size in config.cohort_sizes]).T
        label = rf"FedDyn, $\eta = {eta:g}$"
        axes.band(rounds, rates, lines, "s--", color=colour, markersize=3, label=label)
    axes.describe(
        rounds,
        "share of clients per round",
        f"rounds to an error of {axes.power(config.tolerance)}",
        log="y",
    )
    seeds = f"mean and range of {len(config.seeds)} seeds"
    return axes.finish(figure, path, f"What skipping and sampling cost ({seeds})", 3)
