"""Figures of the bounds, and of the curse of primal averaging."""

import itertools
from pathlib import Path

from experiments.report.axes import shaded
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.shared import Chart, Curve, figure
from experiments.studies.theory.problem import SETTINGS, SMALL_STEPS
from experiments.study import Config

_ROUNDS, _BOTH = "communication round", ("fed_mid", "fed_dual_avg")
_SHARE = r"$\eta_c = {:g}/(4L)$"
_LINES = (("gap", "-", "gap"), ("lemma", "--", "Lemma 4.4"), ("theorem", ":", "Theorem 4.2 or 4.3"))


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the bounds, the curse of averaging on the ball and with an l1 norm, and small steps."""
    bounds, ball, sparsity, small = [], [], [], []
    for setting, (text, _) in SETTINGS.items():
        for steps in config[f"{setting}_num_steps"]:
            cell = select(rows, part="bound", setting=setting, num_steps=steps)
            curves = [
                Curve(select(cell, rate_share=at), y, colour, f"{word}, {_SHARE.format(at)}", line)
                for at, colour in shaded(config.rate_shares)
                for y, line, word in _LINES
            ]
            labels = _ROUNDS, r"$\Phi(\hat w) - \Phi^*$"
            bounds.append(Chart("round", labels, curves, f"{text}, K = {steps}", "y"))
    for measure, up, log, level in (
        ("gap", "$F(w_r) - F^*$", "y", None),
        ("norm", "norm of the model", "", (1.0, "the optimum's norm")),
    ):
        curves, rates = [], zip(config.curse_shares, ("-", "--"), strict=True)
        for name, (at, line) in itertools.product(_BOTH, rates):
            own, (text, colour, _) = select(rows, part="curse", algorithm=name), style(name)
            label = f"{text}, {_SHARE.format(at)}"
            curves.append(Curve(select(own, rate_share=at), measure, colour, label, line))
        ball.append(Chart("round", (_ROUNDS, up), curves, "", log, level))
    for name in _BOTH:
        own, (text, colour, _) = select(rows, part="sparsity", algorithm=name), style(name)
        means = Curve(own, "clients", colour, f"{text}, mean of clients", "--")
        curves = [means, Curve(own, "server", colour, f"{text}, server")]
        labels = _ROUNDS, "density"
        sparsity.append(Chart("round", labels, curves, text, "", None, (0, 1.02)))
    for setting, algorithms in SMALL_STEPS.items():
        own = select(rows, part="small steps", setting=setting)
        curves = [
            Curve(select(own, algorithm=name), "gap", colour, text, line)
            for name, (text, colour, line) in zip(algorithms, map(style, algorithms), strict=True)
        ]
        curves.append(Curve(curves[-1].rows, "theorem", "#333333", "Theorem 4.1", ":"))
        labels = _ROUNDS, r"$\Phi(\bar w_R) - \Phi^*$, mean of the models"
        small.append(Chart("round", labels, curves, SETTINGS[setting][0], "xy"))
    seeds = f"mean and 10 to 90 per cent of {config.seeds} seeds"
    columns, curse = len(bounds) // len(SETTINGS), "The curse of primal averaging"
    on_ball = f"{curse} on the ball (mean and range of {len(config.curse_seeds)} seeds)"
    return [
        *figure(
            directory / "bounds.png", f"FedDualAvg below its bounds ({seeds})", bounds, columns
        ),
        *figure(directory / "curse.png", on_ball, ball),
        *figure(directory / "sparsity.png", f"{curse} with an l1 norm", sparsity),
        *figure(directory / "small_steps.png", f"Small client rates ({seeds})", small, height=3.0),
    ]
