"""Figures of the gap between the methods, and of the costs of skipping and sampling."""

from pathlib import Path

from experiments.report.axes import power, shaded
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.studies.fedpd_feddyn.rows import MATCHING, OFFSET, OTHER_START
from experiments.studies.shared import Chart, Curve, figure
from experiments.study import Config


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw both figures."""
    pairs = select(rows, part="gap", solver="gd")
    starts = [(name, colour, f"matching: {name}", "-") for name, colour in shaded(MATCHING)]
    starts += [(OFFSET, "#D55E00", OFFSET, "--"), (OTHER_START, "#E69F00", OTHER_START, "--")]
    gaps = [Curve(select(pairs, start=name), "gap", *look) for name, *look in starts]
    own = select(pairs, start=OFFSET)
    errors = [
        Curve(own, "fed_pd", style("fed_pd")[1], "FedPD"),
        Curve(own, "fed_dyn", style("fed_dyn")[1], f"FedDyn, {OFFSET}", "--"),
        Curve(own, "from_predicted", "#000000", "FedDyn's distance to its predicted limit", ":"),
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
    above = "FedPD and FedDyn from matching and other starts"
    return [
        *figure(directory / "pair.png", above, pair),
        *figure(directory / "costs.png", title, costs),
    ]
