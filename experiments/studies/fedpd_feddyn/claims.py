"""Claims of the note on the two methods, and of the methods' sources."""

import numpy as np

from experiments.report.claims import Claim
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fedpd_feddyn.rows import OTHER_START, floor_of
from experiments.study import Config

_NOTE = "note on FedPD and FedDyn, {}"
_FEDPD, _FEDDYN = "Zhang et al. (IEEE TSP 2021)", "Acar et al. (ICLR 2021), main theorem"


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
            "with full participation and matching starts FedPD and FedDyn are one method",
            float(column(select(pairs, matching=True), "gap").max()),
            1e-12,
            False,
            source=_NOTE.format("equivalence"),
            measure="largest gap of the models",
        ),
        Claim(
            "a server drift that does not match leaves a permanent bias",
            float(column(bias, "fed_dyn").min()),
            0.1,
            source=_NOTE.format("bias"),
            measure="relative error at the end",
        ),
        Claim(
            "the bias is the predicted one",
            float(column(bias, "from_predicted").max()),
            1e-10,
            False,
            source=_NOTE.format("bias"),
            measure="relative distance, with everyone and with a cohort",
        ),
        Claim(
            "local steps from another start take another path",
            float(other.max()),
            1e-3,
            source=_NOTE.format("starts of local steps"),
            measure="largest gap of the models",
        ),
        Claim(
            "and lead to the same limit",
            float(other[-1]),
            1e-10,
            False,
            source=_NOTE.format("starts of local steps"),
            measure="gap at the end",
        ),
        Claim(
            "without skips FedPD is exact",
            float(max(floor_of(rows, eta, 0.0).max() for eta in means)),
            1e-10,
            False,
            source=f"{_FEDPD}, theorem on skipped exchanges",
            measure="relative error",
        ),
        # Random floors and all cohorts, which a quick run cannot decide.
        Claim(
            "with skips the error has a floor that grows with their probability",
            float(growth),
            1.05,
            source=f"{_FEDPD}, theorem on skipped exchanges",
            measure="least ratio of the floors of neighbouring probabilities",
            quick=False,
        ),
        Claim(
            "a tenth of the prox step has a lower floor",
            float(largest / smaller),
            3.0,
            source=f"{_FEDPD}, theorem on skipped exchanges",
            measure="ratio of the floors",
            quick=False,
        ),
        Claim(
            "a decreasing probability removes the floor",
            float(falls),
            0.05,
            False,
            source=f"{_FEDPD}, theorem on skipped exchanges",
            measure="floor over that of a constant probability",
            quick=False,
        ),
        Claim(
            "FedDyn is exact with any share of the clients",
            float(np.isfinite(rounds).mean()),
            1.0,
            source=_FEDDYN,
            measure="share of runs that reach the tolerance",
            quick=False,
        ),
    ]
