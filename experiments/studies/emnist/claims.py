"""Our expectations: feasibility, and the order of the algorithms in the paper's experiments."""

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.emnist.rows import late_losses, settings
from experiments.study import Config

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
