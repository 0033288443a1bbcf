"""Figures of the bounds, and of the curse of primal averaging."""

from pathlib import Path

from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.theory.problem import SETTINGS, SMALL_STEPS
from experiments.study import Config


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the bounds, the curse of averaging on the ball and with an l1 norm, and small steps."""
    return [
        _draw_bounds(config, rows, directory / "bounds.png"),
        _draw_curse(config, rows, directory / "curse.png"),
        _draw_sparsity(rows, directory / "sparsity.png"),
        _draw_small_steps(config, rows, directory / "small_steps.png"),
    ]


def _draw_bounds(config: Config, rows: list[Row], path: Path) -> Path:
    num_columns = max(len(config[f"{setting}_num_steps"]) for setting in SETTINGS)
    figure, panels = axes.panels(num_columns, len(SETTINGS), height=2.5)
    for line, (setting, (text, _)) in enumerate(SETTINGS.items()):
        for place in range(num_columns):
            axis = panels[line * num_columns + place]
            if place >= len(config[f"{setting}_num_steps"]):
                axis.set_visible(False)
                continue
            num_steps = config[f"{setting}_num_steps"][place]
            cell = select(rows, part="bound", setting=setting, num_steps=num_steps)
            for share, colour in axes.shaded(config.rate_shares):
                own, rate = select(cell, rate_share=share), rf"$\eta_c = {share:g}/(4L)$"
                for name, dashes, word in (
                    ("gap", "-", "gap"),
                    ("lemma", "--", "Lemma 4.4"),
                    ("theorem", ":", "Theorem 4.2 or 4.3"),
                ):
                    label = f"{word}, {rate}"
                    axes.curve(axis, own, "round", name, dashes, color=colour, label=label)
                axes.quantiles(axis, own, "round", colour)
            axes.describe(
                axis,
                "communication round",
                r"$\Phi(\hat w) - \Phi^*$" if place == 0 else "",
                title=f"{text}, K = {num_steps}",
                log="y",
            )
    seeds = f"mean and 10 to 90 per cent of {config.seeds} seeds"
    return axes.finish(figure, path, f"FedDualAvg below its bounds ({seeds})", 3)


def _draw_curse(config: Config, rows: list[Row], path: Path) -> Path:
    figure, (gap, norm) = axes.panels(2, height=2.8)
    for algorithm in ("fed_mid", "fed_dual_avg"):
        name, colour, _ = style(algorithm)
        for share, line in zip(config.curse_shares, ("-", "--"), strict=True):
            for axis, measure in ((gap, "gap"), (norm, "norm")):
                own = select(rows, part="curse", algorithm=algorithm, rate_share=share)
                label = rf"{name}, $\eta_c = {share:g}/(4L)$"
                axes.seeds(axis, own, "round", measure, line, color=colour, label=label)
    norm.axhline(1, color="#555555", linestyle=":", label="the optimum's norm")
    axes.describe(gap, "communication round", "$F(w_r) - F^*$", log="y")
    axes.describe(norm, "communication round", "norm of the model")
    seeds = f"mean and range of {len(config.curse_seeds)} seeds"
    return axes.finish(figure, path, f"The curse of primal averaging on the ball ({seeds})", 2)


def _draw_sparsity(rows: list[Row], path: Path) -> Path:
    figure, panels = axes.panels(2, height=2.8)
    for axis, algorithm in zip(panels, ("fed_mid", "fed_dual_avg"), strict=True):
        name, colour, _ = style(algorithm)
        own = select(rows, part="sparsity", algorithm=algorithm)
        for measure, line, text in (
            ("clients", "--", "the clients' models, mean"),
            ("server", "-", "the server's model"),
        ):
            axes.curve(axis, own, "round", measure, line, color=colour)
            axis.plot([], [], line, color="#333333", label=text)  # in both colours, for the legend
        axis.set_ylim(0, 1.02)
        axes.describe(axis, "communication round", "density", title=name)
    return axes.finish(figure, path, "The curse of primal averaging with an l1 norm", 2)


def _draw_small_steps(config: Config, rows: list[Row], path: Path) -> Path:
    figure, panels = axes.panels(len(SMALL_STEPS), height=3.0)
    for axis, (setting, algorithms) in zip(panels, SMALL_STEPS.items(), strict=True):
        for algorithm in algorithms:
            name, colour, line = style(algorithm)
            own = select(rows, part="small steps", setting=setting, algorithm=algorithm)
            axes.curve(axis, own, "round", "gap", line, color=colour, label=name)
            axes.quantiles(axis, own, "round", colour)
        axes.curve(axis, own, "round", "theorem", ":", color="#333333", label="Theorem 4.1")
        what = r"$\Phi(\bar w_R) - \Phi^*$, mean of the models" if setting == "l1" else ""
        title = SETTINGS[setting][0]
        axes.describe(axis, "communication round", what, title=title, log="xy")
    seeds = f"mean and 10 to 90 per cent of {config.seeds} seeds"
    return axes.finish(figure, path, f"Small client rates ({seeds})", 4)
