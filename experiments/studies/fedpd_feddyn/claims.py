"""Claims of the note on the two methods, and of the methods' sources."""

import numpy as np

from experiments.report.claims import Claim
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fedpd_feddyn.rows import OTHER_START, floor_of
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the note on the two methods, and of the methods' sources."""
    pairs, bias = select(rows, part="gap"), summary["a drift that does not match, at the end"]
    other = column(select(pairs, start=OTHER_START), "gap")
    skips = [p for p in config.skip_probabilities if p > 0]
    middle = len(skips) // 2
    means = {eta: [floor_of(rows, eta, p).mean() for p in skips] for eta in config.skip_prox_steps}
    growth = min(np.divide(at[1:], at[:-1]).min() for at in means.values())
    largest, smaller = (means[eta][middle] for eta in config.skip_prox_steps[-2:])
    falls = max(floor_of(rows, eta, "falling").mean() / means[eta][middle] for eta in means)
    rounds = column(select(rows, part="participation"), "rounds")
    return [
        Claim(
            "matching starts: the models of FedPD and FedDyn coincide (largest gap)",
            float(column(select(pairs, matching=True), "gap").max()),
            1e-12,
            False,
        ),
        Claim(
            "a drift that is not the mean of the duals is a bias for ever (relative error)",
            float(column(bias, "fed_dyn").min()),
            0.1,
        ),
        Claim(
            "and it is the one predicted, with everyone and with a cohort (relative distance)",
            float(column(bias, "from_predicted").max()),
            1e-10,
            False,
        ),
        Claim("local steps from another start take another path (gap)", float(other.max()), 1e-3),
        Claim("to the same limit (gap at the end)", float(other[-1]), 1e-10, False),
        Claim(
            "without skipping FedPD ends at the optimum (relative error)",
            float(max(floor_of(rows, eta, 0.0).max() for eta in means)),
            1e-10,
            False,
        ),
        *_full_run(
            Claim("the floor grows with the probability of skipping (ratio)", float(growth), 1.05),
            Claim(
                "a tenth of the prox step has a lower floor (ratio)", float(largest / smaller), 3.0
            ),
            Claim("skipping less and less removes the floor (ratio)", float(falls), 0.05, False),
            Claim(
                "FedDyn reaches the tolerance with any share of the clients (share of runs)",
                float(np.isfinite(rounds).mean()),
                1.0,
            ),
        ),
    ]


def _full_run(*given) -> list[Claim]:
    """Return claims on random floors or on all cohorts, which a quick run cannot decide."""
    return [claim._replace(quick=False) for claim in given]
