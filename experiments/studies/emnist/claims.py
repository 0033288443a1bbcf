"""Claims: feasibility, and the order of the algorithms in the paper's other experiments."""

from experiments.report.claims import Claim, over_seeds
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.emnist.rows import finite, late_losses, settings
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return our expectations; the paper publishes no results of this experiment.

    In its other experiments FedDualAvg is at least as good as FedMiD, each at its best rates.
    """
    result = []
    for name in config.algorithms:
        excess = [row["violation"] for row in select(rows, part="point", algorithm=name)]
        text = "every model is in its ball"
        worst = max((value for value in excess if finite(value)), default=float("nan"))
        result.append(
            Claim(
                text,
                worst,
                1e-5,
                at_least=False,
                measure="largest excess over the radius, share of it",
                part=style(name)[0],
            )
        )
    if not {"fed_dual_avg", "fed_mid"} <= set(config.algorithms):
        return result
    for setting in settings(rows):
        dual, primal = (
            late_losses(config, select(rows, part="curve", algorithm=name, **setting))
            for name in ("fed_dual_avg", "fed_mid")
        )
        result.append(
            over_seeds(
                "FedDualAvg ends at a smaller training loss than FedMiD",
                dual / primal,
                1.0,
                at_least=False,
                measure="times FedMiD's",
                part="{model}, {constraint} ball of {radius:g}".format(**setting),
            )
        )
    return result
