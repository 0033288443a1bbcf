"""Claims of the closed form and of the theorem."""

import numpy as np

from experiments.report.claims import Claim
from experiments.report.rows import Row, Summary, column, select
from experiments.study import Config


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the closed form and of the theorem."""
    limit, bound = select(rows, part="limit"), select(rows, part="bound")
    knobs = select(rows, part="heterogeneity")
    growth = [
        np.diff(column(select(limit, step_share=share), "distance")[:-1]).min()
        for share in config.step_shares
    ]
    few, many = (select(limit, num_steps=config.many_steps[i]) for i in (0, -1))
    late = [row for row in bound if row["step"] > config.sgd_total_steps / 2]
    fewer = [
        one["rounds"] / two["rounds"] / 2
        for share in config.step_shares
        for one, two in [select(limit, step_share=share)[:2]]
    ]
    difference = _largest(select(rows, part="rounds"), "difference")
    tightest = np.min(column(bound, "bound") / column(bound, "gap"))
    cost = np.max(column(late, "gap") / column(late, "limit"))
    return [
        Claim("the closed form gives the rounds of FedGD (difference)", difference, 1e-10, False),
        Claim("E = 1: FedGD ends at the pooled solution", _largest(few, "distance"), 1e-12, False),
        Claim("E > 1: it does not, the farther the larger E (increase)", float(min(growth)), 1e-4),
        Claim(
            "ten million local steps lead to the mean of the clients' own minimisers (distance)",
            _largest(many, "from_many_steps"),
            1e-12,
            False,
        ),
        *(_heterogeneity(config, knobs) if knobs else []),
        Claim(
            "two local steps need half the rounds of one to come near the limit (rounds of E = 1 "
            "over those of E = 2, over 2)",
            float(min(fewer)),
            0.8,
        ),
        Claim(
            "Theorem 1 is above the mean gap of Local SGD (ratio)",
            float(tightest),
            1.0,
            quick=False,
        ),
        Claim(
            "whatever E, late gaps are what gradient noise alone costs (largest ratio)",
            float(cost),
            1.5,
            False,
            source=False,
            quick=False,
        ),
    ]


def _heterogeneity(config: Config, knobs: list[Row]) -> list[Claim]:
    spread = select(knobs, knob="minimisers", seed=config.instances[0])[1:]
    slopes = column(spread, "distance") / column(spread, "value")
    return [
        Claim(
            "clients that share a minimiser, or a Hessian, are led to the pooled solution",
            _largest(select(knobs, value=0.0), "distance"),
            1e-12,
            False,
            source=False,
        ),
        Claim(
            "the distance is proportional to the spread of the minimisers (relative error)",
            float(slopes.max() / slopes.min() - 1),
            1e-10,
            False,
            source=False,
        ),
    ]


def _largest(rows: list[Row], name: str) -> float:
    return float(column(rows, name).max())
