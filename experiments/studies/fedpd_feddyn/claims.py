"""What the note on the two methods and the methods' sources say."""

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fedpd_feddyn.rows import OTHER_START, floor_of
from experiments.study import Config

# A quick run has too few random floors and cohorts for the last four.
STATEMENTS = """
note on FedPD and FedDyn, equivalence
matching | with full participation and matching starts FedPD and FedDyn are one method
    | largest gap of the models | <= 1e-12
note on FedPD and FedDyn, bias
bias | a server drift that does not match leaves a permanent bias
    | relative error at the end | >= 0.1
predicted | the bias is the predicted one
    | relative distance, with everyone and with a cohort | <= 1e-10
note on FedPD and FedDyn, starts of local steps
path | local steps from another start take another path | largest gap of the models | >= 1e-3
limit | and lead to the same limit | gap at the end | <= 1e-10
Zhang et al. (IEEE TSP 2021), theorem on skipped exchanges
exact | without skips FedPD is exact | relative error | <= 1e-10
growth | with skips the error has a floor that grows with their probability
    | least ratio of the floors of neighbouring probabilities | >= 1.05 | full run
tenth | a tenth of the prox step has a lower floor | ratio of the floors | >= 3 | full run
falls | a decreasing probability removes the floor
    | floor over that of a constant probability | <= 0.05 | full run
Acar et al. (ICLR 2021), main theorem
reached | FedDyn is exact with any share of the clients
    | share of runs that reach the tolerance | >= 1 | full run
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the note on the two methods, and of the methods' sources."""
    pairs, bias = select(rows, part="gap"), summary["a drift that does not match, at the end"]
    other = column(select(pairs, start=OTHER_START), "gap")
    skips, steps = [p for p in config.skip_probabilities if p > 0], config.skip_prox_steps
    means = {eta: np.array([floor_of(rows, eta, p).mean() for p in skips]) for eta in steps}
    usual = {eta: floors[len(skips) // 2] for eta, floors in means.items()}
    numbers = {
        "matching": column(select(pairs, matching=True), "gap"),
        "bias": column(bias, "fed_dyn"),
        "predicted": column(bias, "from_predicted"),
        "path": other.max(),
        "limit": other[-1],
        "exact": [floor_of(rows, eta, 0.0).max() for eta in steps],
        "growth": [floors[1:] / floors[:-1] for floors in means.values()],
        "tenth": usual[steps[-2]] / usual[steps[-1]],
        "falls": [floor_of(rows, eta, "falling").mean() / usual[eta] for eta in steps],
        "reached": np.isfinite(column(select(rows, part="participation"), "rounds")).mean(),
    }
    return judged(STATEMENTS, numbers, quick=True)
