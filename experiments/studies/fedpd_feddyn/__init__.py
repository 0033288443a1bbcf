"""FedPD and FedDyn: when they are one method, and what skipping and sampling cost."""

from pathlib import Path
from typing import Literal

import numpy as np

from experiments.report.axes import power, shaded
from experiments.report.claims import Claim, judged
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fedpd_feddyn.rows import MATCHING, OFFSET, OTHER, floor, study, summarise
from experiments.studies.shared import Chart, Curve, figure
from experiments.study import Config, Study
from fcojax.types import Count, CountOrZero, Positive, Probability

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
rate | and for losses that are not convex its mean squared gradient over T rounds falls as 1 / T
    | slope in logarithms over the last tenfold of rounds | <= -0.9
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
    other = column(select(pairs, start=OTHER), "gap")
    skips, steps = [p for p in config.skip_probabilities if p > 0], config.skip_prox_steps
    means = {eta: np.array([floor(rows, eta, p).mean() for p in skips]) for eta in steps}
    usual = {eta: floors[len(skips) // 2] for eta, floors in means.items()}
    rate, early = select(rows, part="rate", skip_probability=0), config.tolerance_rounds / 10
    late = [[row["round"], row["square"]] for row in rate if row["round"] >= early]
    numbers = {
        "matching": column(select(pairs, matching=True), "gap"),
        "bias": column(bias, "fed_dyn"),
        "predicted": column(bias, "from_predicted"),
        "path": other.max(),
        "limit": other[-1],
        "exact": [floor(rows, eta, 0.0).max() for eta in steps],
        "growth": [floors[1:] / floors[:-1] for floors in means.values()],
        "tenth": usual[steps[-2]] / usual[steps[-1]],
        "falls": [floor(rows, eta, "falling").mean() / usual[eta] for eta in steps],
        "rate": np.polyfit(*np.log(late).T, deg=1)[0],
        "reached": np.isfinite(column(select(rows, part="participation"), "rounds")).mean(),
    }
    return judged(STATEMENTS, numbers, quick=True)


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the figures."""
    pairs = select(rows, part="gap", solver="gd")
    starts = [(name, colour, f"matching: {name}", "-") for name, colour in shaded(MATCHING)]
    starts += [(OFFSET, "#D55E00", OFFSET, "--"), (OTHER, "#E69F00", OTHER, "--")]
    gaps = [Curve(select(pairs, start=name), "gap", *look) for name, *look in starts]
    own = select(pairs, start=OFFSET)
    errors = [
        Curve(own, "fed_pd", style("fed_pd")[1], "FedPD"),
        Curve(own, "fed_dyn", style("fed_dyn")[1], "FedDyn, with such a drift", "--"),
        Curve(own, "from_predicted", "#000000", "FedDyn, to its predicted limit", ":"),
    ]
    skips = [
        row for row in select(rows, part="floor") if row["skip_probability"] not in (0, "falling")
    ]
    floors = [
        Curve(select(skips, prox_step=eta), "error", colour, rf"FedPD, $\eta = {eta:g}$", "o-")
        for eta, colour in shaded(config.skip_prox_steps)
    ]
    sizes = select(rows, part="participation")
    cohorts = [
        Curve(select(sizes, prox_step=eta), "rounds", colour, rf"FedDyn, $\eta = {eta:g}$", "s--")
        for eta, colour in shaded(config.cohort_prox_steps)
    ]
    gap = "communication round", "largest gap of the two models"
    error = "communication round", "relative error of the model"
    skipping = "probability of skipping an exchange", "floor of the error"
    sampling = "share of clients per round", f"rounds to an error of {power(config.tolerance)}"
    pair = [
        Chart("round", gap, gaps, "", "y", (1e-12, "tolerance")),
        Chart("round", error, errors, "", "y"),
    ]
    costs = [
        Chart("skip_probability", skipping, floors, "", "y"),
        Chart("rate", sampling, cohorts, "", "y"),
    ]
    title = f"What skipping and sampling cost (mean and range of {len(config.seeds)} seeds)"
    rates = [
        Curve(select(rows, part="rate", skip_probability=p), "square", c, f"$p = {p:g}$")
        for p, c in shaded(config.skip_probabilities)
    ]
    rates.append(Curve(rates[0].rows, "line", "#000000", "slope of $1/T$", ":"))
    labels = "communication rounds $T$", r"mean of $|\nabla f|^2$ over $T$ rounds"
    drawn = figure(directory / "pair.png", "FedPD and FedDyn from matching and other starts", pair)
    drawn += figure(directory / "costs.png", title, costs)
    title = "FedPD that skips with probability $p$, on losses that are not convex"
    return drawn + figure(directory / "rate.png", title, [Chart("round", labels, rates, "", "xy")])


EXPERIMENT = Study(
    title="FedPD and FedDyn: one method or two",
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=draw,
    x64=True,
    keys={
        Literal["exact", "gd"]: "solvers",
        Count: "num_clients dim num_steps num_rounds cohort_size cohort_rounds skip_rounds "
        "cohort_sizes tolerance_rounds",
        CountOrZero: "data_seed seeds",
        Positive: "curvatures[2] prox_step skip_prox_steps[2+] cohort_prox_steps tolerance",
        Probability: "skip_probabilities[3+]",
    },
    requires={
        "curvatures in ascending order": lambda own: own.curvatures[0] <= own.curvatures[1],
        "skip_probabilities with 0 among them": lambda own: 0 in own.skip_probabilities,
        "skip_rounds that 200 divides": lambda own: own.skip_rounds % 200 == 0,
        "cohort_size and cohort_sizes of at most num_clients": lambda own: (
            max(own.cohort_size, *own.cohort_sizes) <= own.num_clients
        ),
    },
)
