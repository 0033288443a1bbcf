"""Figure of F1 and gap over the budget."""

from pathlib import Path

import numpy as np

from fcojax.experiments import Config, Row, Summary, axes, column, select, style
from fcojax_sites.studies.sites.rows import standard_error
from fcojax_sites.studies.sites.runs import METHODS

_COLOURS = {"fed_dual_avg": style("fed_dual_avg")[1], "averaged_cd": style("fed_mid")[1]}
_LINES = (":", "--", "-")


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw a column for each design, with F1 above and gaps below."""
    figure, panels = axes.panels(len(config.designs), 2)
    budgets = list(config.num_rounds)
    for place, design in enumerate(config.designs):
        above, below = panels[place], panels[place + len(config.designs)]
        for method, text in METHODS.items():
            for num_steps, line in zip(config.num_steps, _LINES, strict=False):
                own = select(rows, part="run", design=design, method=method, num_steps=num_steps)
                for axis, measure in ((above, "f1"), (below, "gap")):
                    found = [column(select(own, round=r), measure) for r in budgets]
                    axis.errorbar(
                        budgets,
                        [np.mean(values) for values in found],
                        [standard_error(values) for values in found] if axis is above else None,
                        fmt=line,
                        marker="o",
                        markersize=2.5,
                        linewidth=1.3,
                        color=_COLOURS[method],
                        label=f"{text}, $E = {num_steps}$",
                    )
        pooled = column(select(rows, part="pooled", design=design), "f1").mean()
        above.axhline(pooled, color="#555555", linewidth=0.8, label="lasso on all rows")
        left = place == 0
        axes.describe(above, "", "F1 of the support" if left else "", title=design, log="x")
        axes.describe(below, "communication rounds", "gap to the optimum" if left else "", log="xy")
        for axis in (above, below):
            axis.set_xticks(budgets, [str(budget) for budget in budgets])
            axis.minorticks_off()
        above.set_ylim(0, 1)
    title = f"At the common strength (means and standard errors of {config.num_seeds} problems)"
    return [axes.finish(figure, directory / "sites.png", title, 4)]
