"""What the paper says, on every split."""

import itertools
import math
from typing import Any

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.kpca.rows import curves, floors, rounds_to
from experiments.study import Config

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
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the paper on every split."""
    table, found = STATEMENTS.format(tolerance=config.tolerance), []
    for floor in (row for row in rows if row["part"] == "floor"):
        numbers = _of_split(config, select(rows, split=floor["split"]), floor)
        found += judged(table, numbers, floor["split"])
    by_size = curves(rows, "crowds", "num_clients")
    if len(by_size) > 1:
        logs = np.log([floors(curve) for curve in by_size.values()])  # [sizes, seeds]
        slopes = np.polyfit(np.log([size for (size,) in by_size]), logs, 1)[0]
        found += judged(table, {"crowds": slopes}, "synthetic")
    return found


def _of_split(config: Config, rows: list[Row], floor: Row) -> dict[str, Any]:
    """Return the numbers of one split, by column."""
    methods = {name: curve for (name,), curve in curves(rows, "methods", "algorithm").items()}
    half, found = config.num_rounds / 2, {}
    ours, reduced = methods.pop("fed_manifold", None), methods.get("r_fed_svrg")
    if averaged := methods.get("r_fed_avg"):
        late = min(row["grad_norm"] for row in averaged if row["round"] > half)
        found["averaged"] = late / (floor["grad_norm"] / 2)
    if pulled := methods.get("r_fed_prox"):
        middle = next(row for row in pulled if row["round"] >= half)
        found["pulled"] = pulled[-1]["grad_norm"] / middle["grad_norm"]
    if ours:
        found["least"] = min(row["grad_norm"] for row in ours if row["round"] > 0)
    if ours and methods:
        others = [row for curve in methods.values() for row in curve]
        as_many = [row["grad_norm"] for row in others if _floats(row) <= _floats(ours[-1])]
        found["sent"] = ours[-1]["grad_norm"] / min(as_many)
    if ours and reduced:
        found["reduced"] = _saved(config, reduced, ours)
        found["twice"] = _floats(reduced[-1]) / _floats(ours[-1])
    by_steps = [curve for _, curve in sorted(curves(rows, "steps", "num_steps").items())]
    if len(by_steps) > 1:
        found["steps"] = min(_saved(config, *pair) for pair in itertools.pairwise(by_steps))
    batches = sorted(curves(rows, "batches", "batch_size").items())
    if len(batches) > 1:
        found["batches"] = floors(batches[0][1]) / floors(batches[-1][1])
    if servers := sorted(curves(rows, "servers", "server_lr").items()):
        (_, usual), (_, larger) = servers
        level = max(config.tolerance, usual[-1]["grad_norm"])
        one, many = (rounds_to(level, curve) for curve in (usual, larger))
        found["servers"] = (one / many if one and many else math.nan) / math.sqrt(
            config.num_clients
        )
    return found


def _saved(config: Config, one: list[Row], other: list[Row]) -> float:
    """Return the ratio of the rounds in which two curves reach the tolerance.

    A run that is stopped above the tolerance is compared at the last level that both reach, not
    counted as never there.
    """
    level = max(config.tolerance, *(column(curve, "grad_norm").min() for curve in (one, other)))
    first, second = (rounds_to(level, curve) or math.nan for curve in (one, other))
    return first / second


def _floats(row: Row) -> int:
    return row["floats_up"] + row["floats_down"]
