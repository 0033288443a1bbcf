"""Principal components on the Stiefel manifold: Zhang, Hu, So and Johansson (NeurIPS 2024)."""

import itertools
from pathlib import Path
from typing import Literal

import numpy as np

from experiments.report.axes import shaded
from experiments.report.claims import Claim, judged
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.kpca.rows import (
    EFFECTS,
    METHODS,
    curves,
    floors,
    late_mean_square,
    numbers_of,
    study,
    summarise,
)
from experiments.studies.shared import Chart, Curve, figure
from experiments.study import Config, Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share

# Slopes count as -1 up to 0.15, and two methods as about equal up to 1.1 times the rounds. A round
# also sends step counts, so 1.9 times the floats are twice as many.
STATEMENTS = """
Zhang, Hu, So and Johansson (NeurIPS 2024), kPCA, comparison of the methods
least | the manifold method converges to a stationary point | least gradient norm | <= {tolerance}
averaged | RFedAvg stalls
    | least gradient norm in the second half of the rounds over half its floor | >= 1
pulled | RFedProx stalls | last gradient norm over that after half of the rounds | >= 0.5
sent | the manifold method has the smallest gradient for the communication
    | gradient norm over the least of other methods with as many floats sent | <= 1
reduced | RFedSVRG is about as good a round
    | its rounds over the method's, to the tolerance or the last level of both | <= 1.1
twice | RFedSVRG sends twice as much | floats up and down over the method's | >= 1.9
Zhang, Hu, So and Johansson (NeurIPS 2024), kPCA, number of local steps
steps | more local steps need fewer rounds | least ratio of the rounds, fewer steps over more,
    to the tolerance or the last level of both | >= 1.05
Zhang, Hu, So and Johansson (NeurIPS 2024), kPCA, batch size
batches | a larger batch ends at a smaller gradient
    | floor of the smallest batches over that of the largest | > 1
Zhang, Hu, So and Johansson (NeurIPS 2024), theorem on the rate
servers | n clients with a server step of sqrt(n) speed the method up by sqrt(n)
    | rounds of a step of 1 over those of a step of sqrt(n), over sqrt(n) | >= 0.9
crowds | with minibatches n clients lower the floor as 1 / n
    | log-log slope of the squared gradient's floor in n | < -0.85
Expected by us
crowds | and no faster than 1 / n | log-log slope of the squared gradient's floor in n | > -1.15
partial | with a cohort of {cohort_size} in each round the manifold method converges
    | least gradient norm over the tolerance, or over that with all clients if it is larger | <= 3
spared | with a cohort of {cohort_size} it uploads fewer floats
    | floats up over those with all clients, to the tolerance or the last level of both | <= 0.9
stopped | RFedSVRG stalls with a cohort of {cohort_size}
    | least gradient norm in the second half of the rounds over the manifold method's | >= 100
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the paper on every split."""
    table, found = STATEMENTS.format_map(config), []
    for (split,), floors_of in curves(rows, "floor", "split").items():
        draws = [numbers_of(config, rows, floor) for floor in floors_of]
        numbers = {name: np.hstack([draw[name] for draw in draws]) for name in draws[0]}
        found += judged(table, numbers, split)
    by_size = curves(rows, "crowds", "num_clients")
    if len(by_size) > 1:
        logs = np.log([floors(curve) for curve in by_size.values()])  # [sizes, seeds]
        slopes = np.polyfit(np.log([size for (size,) in by_size]), logs, 1)[0]
        found += judged(table, {"crowds": slopes}, "synthetic")
    return found


_OVER = {
    "round": "communication round",
    "floats_up": "floats sent by a client",
    "seconds": "seconds, compilation excluded",
}
_MEASURES = {"grad_norm": "norm of the Riemannian gradient", "suboptimality": "$F - F^*$"}


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw, for each split, the methods over rounds, floats and seconds, and the effects."""
    paths = []
    for (name,), of_draws in curves(rows, "floor", "split").items():
        own, floor = select(rows, split=name), column(of_draws, "grad_norm").mean()
        looks = [(curve, style(*key)) for key, curve in curves(own, "methods", "algorithm").items()]
        level, charts = (floor, "predicted floor of RFedAvg"), []
        for (measure, up), (over, across) in itertools.product(_MEASURES.items(), _OVER.items()):
            drawn = [Curve(own, measure, colour, text, line) for own, (text, colour, line) in looks]
            beside = level if measure == "grad_norm" else None
            charts.append(Chart(over, (across, up), drawn, "", "y", beside))
        title = f"Principal components, {name}: {config.num_steps} local steps, full batches"
        slug = name.replace(" ", "_")
        paths += figure(directory / f"methods_{slug}.png", title, charts, columns=3)
        if select(own, part="steps"):
            charts, title = _effects(config, own), f"The manifold method, {name}"
            columns = 2 if len(charts) == 4 else 3
            paths += figure(directory / f"effects_{slug}.png", title, charts, columns)
    return paths


def _effects(config: Config, rows: list[Row]) -> list[Chart]:
    """Return charts of local steps, batches, the server's step, cohorts and crowds.

    Each parameter has its own colours.
    """
    at = rf"full batches, $\eta = {config.server_relative_lr:g} / L$"
    looks = {
        "steps": ("{} local steps", "Blues_r", "full batches"),
        "batches": ("batch {}", "Oranges_r", f"minibatches, {config.num_steps} local steps"),
        "servers": (r"$\eta_g = {:.3g}$", "Greens_r", at),
    }
    labels, charts = (_OVER["round"], _MEASURES["grad_norm"]), []
    for part, (text, colours, title) in looks.items():
        shown = shaded(curves(rows, part, EFFECTS[part]).items(), colours)
        drawn = [Curve(own, "grad_norm", colour, text.format(*at)) for (at, own), colour in shown]
        charts.append(Chart("round", labels, drawn, title, "y"))
    if cohorts := curves(rows, "cohorts", "algorithm"):
        looked = [(own, *style(name)) for (name,), own in cohorts.items()]
        if every := curves(rows, "methods", "algorithm").get(METHODS[:1]):
            looked.append((every, "FedManifold, all clients", "#000000", ":"))
        drawn = [Curve(own, "grad_norm", colour, text, line) for own, text, colour, line in looked]
        title = f"full batches, {config.cohort_size} clients a round"
        charts.append(Chart("round", labels, drawn, title, "y"))
    if by_size := curves(rows, "crowds", "num_clients"):
        points = [{"share": 1 / n, "floor": late_mean_square(own)} for (n,), own in by_size.items()]
        slope = points[0]["floor"] / points[0]["share"]
        line = [row | {"floor": slope * row["share"]} for row in points]
        drawn = [
            Curve(points, "floor", "#000000", "late mean of its square", "o"),
            Curve(line, "floor", "#555555", "as $1 / n$", ":"),
        ]
        labels = "one over the number of clients, $1 / n$", "squared gradient norm"
        charts.append(Chart("share", labels, drawn, f"minibatches of {config.crowd_batch}"))
    return charts


EXPERIMENT = Study(
    title="Principal components on the Stiefel manifold",
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=draw,
    x64=True,
    keys={
        Literal[METHODS]: "algorithms",
        Count: "num_clients num_components cohort_size num_steps num_rounds eval_every crowd_batch "
        "num_examples dim step_counts[0+] crowds[0+]",
        Share: "batch_shares[0+]",
        CountOrZero: "seeds data_seed",
        Positive: "relative_lr server_lr server_relative_lr tolerance",
        NonNegative: "relative_prox",
        str: "data_dir",
    },
    requires={
        "cohort_size of at most num_clients": lambda own: own.cohort_size <= own.num_clients,
        "num_components below dim": lambda own: own.data_dir or own.num_components < own.dim,
    },
)
