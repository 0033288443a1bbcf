"""Principal components on the Stiefel manifold: Zhang, Hu, So and Johansson (NeurIPS 2024)."""

from typing import Literal

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, select
from experiments.studies.kpca import figures
from experiments.studies.kpca.rows import METHODS, curves, floors, numbers_of, study, summarise
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
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the paper on every split."""
    table, found = STATEMENTS.format(tolerance=config.tolerance), []
    for floor in (row for row in rows if row["part"] == "floor"):
        numbers = numbers_of(config, select(rows, split=floor["split"]), floor)
        found += judged(table, numbers, floor["split"])
    by_size = curves(rows, "crowds", "num_clients")
    if len(by_size) > 1:
        logs = np.log([floors(curve) for curve in by_size.values()])  # [sizes, seeds]
        slopes = np.polyfit(np.log([size for (size,) in by_size]), logs, 1)[0]
        found += judged(table, {"crowds": slopes}, "synthetic")
    return found


EXPERIMENT = Study(
    title="Principal components on the Stiefel manifold",
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=figures.draw,
    x64=True,
    keys={
        Literal[METHODS]: "algorithms",
        Count: "num_clients num_components num_steps num_rounds eval_every crowd_batch "
        "num_examples dim step_counts[0+] crowds[0+]",
        Share: "batch_shares[0+]",
        CountOrZero: "seeds data_seed",
        Positive: "relative_lr server_lr server_relative_lr tolerance",
        NonNegative: "relative_prox",
        str: "data_dir",
    },
    requires={
        "num_components below dim": lambda own: own.data_dir or own.num_components < own.dim,
    },
)
