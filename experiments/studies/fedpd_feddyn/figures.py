"""Figures of the gap between the methods, and of the costs of skipping and sampling."""

from pathlib import Path

import numpy as np

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fedpd_feddyn.rows import MATCHING, OFFSET, OTHER_START
from experiments.studies.fedpd_feddyn.tables import floor_of, rounds_of
from experiments.study import Config


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw both figures."""
    return [
        _draw_pair(config, rows, directory / "pair.png"),
        _draw_costs(config, rows, directory / "costs.png"),
    ]


def _draw_pair(config: Config, rows: list[Row], path: Path) -> Path:
    figure, (gap, error) = axes.panels(2, height=2.8)
    for name, colour in zip(MATCHING, axes.shades(len(MATCHING)), strict=True):
        own = select(rows, part="gap", start=name, solver="gd")
        gap.plot(
            column(own, "round"), column(own, "gap"), color=colour, linewidth=1,
            label=f"matching: {name}",
        )  # fmt: skip
    for name, colour in ((OFFSET, "#D55E00"), (OTHER_START, "#E69F00")):
        own = select(rows, part="gap", start=name, solver="gd")
        gap.plot(column(own, "round"), column(own, "gap"), "--", color=colour, label=name)
    gap.axhline(1e-12, color="#555555", linestyle=":", label="tolerance")
    axes.describe(gap, "communication round", "largest gap of the two models", log="y")
    own = select(rows, part="gap", start=OFFSET, solver="gd")
    for measure in ("fed_pd", "fed_dyn"):
        name, colour, line = style(measure)
        error.plot(
            column(own, "round"), column(own, measure), line, color=colour, linewidth=1.6,
            label=f"{name}, {OFFSET}" if measure == "fed_dyn" else name,
        )  # fmt: skip
    error.plot(
        column(own, "round"), column(own, "from_predicted"), ":", color="#000000",
        label="FedDyn's distance to its predicted limit",
    )  # fmt: skip
    axes.describe(error, "communication round", "relative error of the model", log="y")
    return axes.finish(figure, path, "FedPD and FedDyn from matching and other starts", 2)


def _draw_costs(config: Config, rows: list[Row], path: Path) -> Path:
    figure, (floor, rounds) = axes.panels(2, height=3.0)
    skips, etas = [p for p in config.skip_probabilities if p > 0], config.skip_prox_steps
    for eta, colour in zip(etas, axes.shades(len(etas)), strict=True):
        lines = np.array([floor_of(rows, eta, p) for p in skips]).T
        label = rf"FedPD, $\eta = {eta:g}$"
        axes.band(floor, skips, lines, "o-", color=colour, markersize=3, label=label)
    axes.describe(floor, "probability of skipping an exchange", "floor of the error", log="y")
    rates = [size / config.num_clients for size in config.cohort_sizes]
    etas = config.cohort_prox_steps
    for eta, colour in zip(etas, axes.shades(len(etas)), strict=True):
        lines = np.array([rounds_of(config, rows, eta, size) for size in config.cohort_sizes]).T
        label = rf"FedDyn, $\eta = {eta:g}$"
        axes.band(rounds, rates, lines, "s--", color=colour, markersize=3, label=label)
    axes.describe(
        rounds, "share of clients a round", f"rounds to an error of {config.tolerance:g}", log="y"
    )
    seeds = f"mean and range of {len(config.seeds)} seeds"
    return axes.finish(figure, path, f"What skipping and sampling cost ({seeds})", 3)
