"""Claims of the closed form and of the theorem."""

import numpy as np

from experiments.report.claims import Claim
from experiments.report.rows import Row, Summary, column, select
from experiments.study import Config

_LECTURE = "lecture on FedGD, least squares"
_PAPER = "Li, Huang, Yang, Wang and Zhang (ICLR 2020), Theorem 1"


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
        Claim(
            "the closed form gives the rounds of FedGD",
            difference,
            1e-10,
            False,
            source=_LECTURE,
            measure="largest difference",
        ),
        Claim(
            "with E = 1 FedGD ends at the least-squares solution",
            _largest(few, "distance"),
            1e-12,
            False,
            source=_LECTURE,
            measure="distance",
        ),
        Claim(
            "with E > 1 it does not, and ends the farther the larger E",
            float(min(growth)),
            1e-4,
            source=_LECTURE,
            measure="least increase of the distance",
        ),
        Claim(
            "as E grows the limit approaches the mean of the clients' own minimisers",
            _largest(many, "from_many_steps"),
            1e-12,
            False,
            source=_LECTURE,
            measure="distance with ten million local steps",
        ),
        *(_heterogeneity(config, knobs) if knobs else []),
        Claim(
            "more local steps need fewer rounds to the limit",
            float(min(fewer)),
            0.8,
            source=_LECTURE,
            measure="rounds of E = 1 over those of E = 2, over 2",
        ),
        Claim(
            "Theorem 1 is above the gap of Local SGD",
            float(tightest),
            1.0,
            source=_PAPER,
            measure="least bound over mean gap",
            quick=False,
        ),
        Claim(
            "whatever E, late gaps are what gradient noise alone costs",
            float(cost),
            1.5,
            False,
            measure="largest ratio",
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
            measure="largest distance",
        ),
        Claim(
            "the distance is proportional to the spread of the minimisers",
            float(slopes.max() / slopes.min() - 1),
            1e-10,
            False,
            measure="relative error",
        ),
    ]


def _largest(rows: list[Row], name: str) -> float:
    return float(column(rows, name).max())
