"""What the closed form and the theorem say."""

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, column, select
from experiments.study import Config

STATEMENTS = """
lecture on FedGD, least squares
difference | the closed form gives the rounds of FedGD | largest difference | <= 1e-10
few | with E = 1 FedGD ends at the least-squares solution | distance | <= 1e-12
growth | with E > 1 it does not, and ends the farther the larger E
    | least increase of the distance | >= 1e-4
many | as E grows the limit approaches the mean of the clients' own minimisers
    | distance with ten million local steps | <= 1e-12
fewer | more local steps need fewer rounds to the limit
    | rounds of E = 1 over those of E = 2, over 2 | >= 0.8
Li, Huang, Yang, Wang and Zhang (ICLR 2020), Theorem 1
bound | Theorem 1 is above the gap of Local SGD | least bound over mean gap | >= 1 | full run
Expected by us
same | clients that share a minimiser, or a Hessian, are led to the pooled solution
    | largest distance | <= 1e-12
spread | the distance is proportional to the spread of the minimisers | relative error | <= 1e-10
late | whatever E, late gaps are what gradient noise alone costs | largest ratio | <= 1.5 | full run
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the closed form and of the theorem."""
    limit, bound = select(rows, part="limit"), select(rows, part="bound")
    by_share = [select(limit, step_share=share) for share in config.step_shares]
    few, many = (select(limit, num_steps=config.many_steps[end]) for end in (0, -1))
    late = [row for row in bound if row["step"] > config.sgd_total_steps / 2]
    numbers = {
        "difference": column(select(rows, part="rounds"), "difference"),
        "few": column(few, "distance"),
        "growth": [np.diff(column(own, "distance")[:-1]).min() for own in by_share],
        "many": column(many, "from_many_steps"),
        "fewer": [own[0]["rounds"] / own[1]["rounds"] / 2 for own in by_share],
        "bound": column(bound, "bound") / column(bound, "gap"),
        "late": column(late, "gap") / column(late, "limit"),
    }
    if knobs := select(rows, part="heterogeneity"):
        spread = select(knobs, knob="minimisers", seed=config.instances[0])[1:]
        slopes = column(spread, "distance") / column(spread, "value")
        numbers["same"] = column(select(knobs, value=0.0), "distance")
        numbers["spread"] = slopes.max() / slopes.min() - 1
    return judged(STATEMENTS, numbers, quick=True)
