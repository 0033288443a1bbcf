"""Figures of limits, rounds and the bound."""

from pathlib import Path

from experiments.report.axes import power, shaded
from experiments.report.rows import Row, Summary, select
from experiments.studies.shared import Chart, Curve, figure
from experiments.study import Config

_ROUNDS, _VERTICAL = "communication round", r"distance $|x_{FGD} - x_{LS}|$"


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the limits, the rounds and the bound."""
    knobs, share = select(rows, part="heterogeneity"), config.step_shares[0]
    limits = [
        (select(rows, part="limit", step_share=other)[:-1], f"limit of FedGD, $s = {other:g}/L$", c)
        for other, c in shaded(config.step_shares)
    ]
    far = limits[0][0][0]["many_steps_distance"], "mean of the local minimisers"
    curves = [Curve(own, "distance", colour, text, "o-") for own, text, colour in limits]
    ends = [Chart("num_steps", ("local steps $E$", _VERTICAL), curves, "", "x", far)]
    for knob in ("minimisers", "Hessians") if knobs else ():
        own = [row for row in select(knobs, knob=knob.lower()) if row["value"]]
        text = f"$E = {config.heterogeneity_steps}$, mean and range of {len(config.instances)} "
        curves = [Curve(own, "distance", "#0072B2", f"{text}instances", "o-")]
        labels = f"spread of the {knob} (0 at 0)", _VERTICAL
        ends.append(Chart("value", labels, curves, "", "xy"))
    simulated = [
        (select(rows, part="rounds", step_share=share, num_steps=steps), colour, f"$E = {steps}$")
        for steps, colour in shaded(config.simulated_steps)
    ]
    distances = [Curve(own, "distance", *look) for own, *look in simulated]
    differences = [Curve(own, "difference", *look) for own, *look in simulated]
    needed = [Curve(own, "rounds", colour, text, "o-") for own, text, colour in limits]
    closed, until = (
        "difference to the closed form",
        f"rounds until {power(config.near_limit)} is left",
    )
    rounds = [
        Chart("round", (_ROUNDS, "$|x_t - x_{LS}|$"), distances, "", "y"),
        # A logarithmic axis cannot show a difference of exactly zero.
        Chart(
            "round", (_ROUNDS, closed), differences, "", "y", (1e-10, "tolerance"), (1e-17, 1e-9)
        ),
        Chart("num_steps", ("local steps $E$", until), needed, "", "xy"),
    ]
    bounds = []
    for name in config.sgd_problems:
        curves = []
        for steps, colour in shaded(config.sgd_num_steps):
            own = select(rows, part="bound", problem=name, num_steps=steps)
            curves.append(Curve(own, "gap", colour, f"mean gap, $E = {steps}$"))
            curves.append(Curve(own, "bound", colour, f"bound, $E = {steps}$", "--"))
            curves.append(Curve(own, "limit", "#D55E00", "exact limit of the gap", ":"))
        labels = "local steps $T$", "$f(x_T) - f^*$"
        bounds.append(Chart("step", labels, curves, name, "xy"))
    above = f"Local SGD below Theorem 1 (mean and 10 to 90 per cent of {config.sgd_seeds} seeds)"
    ends_at = "Where FedGD ends, against the least-squares solution"
    return [
        *figure(directory / "limits.png", ends_at, ends),
        *figure(directory / "rounds.png", f"Rounds of FedGD at $s = {share:g}/L$", rounds),
        *figure(directory / "bound.png", above, bounds, height=3.0),
    ]
