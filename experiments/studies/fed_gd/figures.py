"""Figures of limits, rounds and the bound."""

from pathlib import Path

import numpy as np

from experiments.report import axes
from experiments.report.rows import Row, Summary, column, select
from experiments.study import Config


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the limits, the rounds and the bound."""
    return [
        _draw_limits(config, rows, directory / "limits.png"),
        _draw_rounds(config, rows, directory / "rounds.png"),
        _draw_bound(config, rows, directory / "bound.png"),
    ]


def _draw_limits(config: Config, rows: list[Row], path: Path) -> Path:
    knobs = select(rows, part="heterogeneity")
    figure, (over_steps, *others) = axes.panels(3 if knobs else 1)
    for share, colour in axes.shaded(config.step_shares):
        own = select(rows, part="limit", step_share=share)[:-1]
        text = f"limit of FedGD, $s = {share:g}/L$"
        axes.curve(
            over_steps, own, "num_steps", "distance", "o-", color=colour, markersize=3, label=text
        )
    far = select(rows, part="limit")[0]["many_steps_distance"]
    over_steps.axhline(far, color="#555555", linestyle=":", label="mean of the local minimisers")
    vertical = r"distance $|x_{FGD} - x_{LS}|$"
    axes.describe(over_steps, "local steps $E$", vertical, log="x")
    for axis, knob in zip(others, ("minimisers", "Hessians"), strict=False):
        own = [row for row in select(knobs, knob=knob.lower()) if row["value"]]
        instances = f"mean and range of {len(config.instances)} instances"
        label = f"$E = {config.heterogeneity_steps}$, {instances}"
        axes.seeds(axis, own, "value", "distance", "o-", color="#0072B2", markersize=3, label=label)
        axes.describe(axis, f"spread of the {knob} (0 at 0)", vertical, log="xy")
    return axes.finish(figure, path, "Where FedGD ends, against the least-squares solution", 2)


def _draw_rounds(config: Config, rows: list[Row], path: Path) -> Path:
    share = config.step_shares[0]
    figure, (distance, difference, needed) = axes.panels(3)
    for num_steps, colour in axes.shaded(config.simulated_steps):
        own = select(rows, part="rounds", step_share=share, num_steps=num_steps)
        axes.curve(distance, own, "round", "distance", color=colour, label=f"$E = {num_steps}$")
        # A logarithmic axis cannot show a difference of exactly zero.
        floor = np.maximum(column(own, "difference"), 1e-17)
        difference.plot(column(own, "round"), floor, color=colour, linewidth=1)
    difference.axhline(1e-10, color="#D55E00", linestyle="--", label="tolerance")
    for other, colour in zip(config.step_shares, ("#555555", "#CC79A7"), strict=True):
        own = select(rows, part="limit", step_share=other)[:-1]
        steps, rounds = column(own, "num_steps"), column(own, "rounds")
        needed.plot(steps, rounds, "o-", color=colour, markersize=3, label=f"$s = {other:g}/L$")
        needed.plot(steps, np.maximum(rounds[0] / steps, 1), ":", color=colour)
    axes.describe(
        needed, "local steps $E$", f"rounds until {axes.power(config.near_limit)} is left", log="xy"
    )
    axes.describe(distance, "communication round", "$|x_t - x_{LS}|$", log="y")
    axes.describe(difference, "communication round", "difference to the closed form", log="y")
    return axes.finish(figure, path, f"Rounds of FedGD at $s = {share:g}/L$", 6)


def _draw_bound(config: Config, rows: list[Row], path: Path) -> Path:
    figure, panels = axes.panels(len(config.sgd_problems), height=3.0)
    for axis, name in zip(panels, config.sgd_problems, strict=True):
        for num_steps, colour in axes.shaded(config.sgd_num_steps):
            own, steps = select(rows, part="bound", problem=name, num_steps=num_steps), num_steps
            axes.curve(axis, own, "step", "gap", color=colour, label=f"mean gap, $E = {steps}$")
            axes.quantiles(axis, own, "step", colour, 0.15)
            axes.curve(
                axis, own, "step", "bound", "--", color=colour, label=f"bound, $E = {steps}$"
            )
        axes.curve(axis, own, "step", "limit", ":", color="#D55E00", label="exact limit of the gap")
        axes.describe(axis, "local steps $T$", "$f(x_T) - f^*$", title=name, log="xy")
    title = f"Local SGD below Theorem 1 (mean and 10 to 90 per cent of {config.sgd_seeds} seeds)"
    return axes.finish(figure, path, title, 4)
