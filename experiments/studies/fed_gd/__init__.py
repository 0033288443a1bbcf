"""FedGD and Local SGD: the limits of local steps, and a theorem's bound."""

from pathlib import Path
from typing import Literal

import numpy as np

from experiments.report.axes import power, shaded
from experiments.report.claims import Claim, judged
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fed_gd.rows import LINKS, study, summarise
from experiments.studies.shared import Chart, Curve, figure
from experiments.study import Config, Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive

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
iid | its Gamma goes to zero for iid clients, as one over the rows of a client
    | distance from 1 of the slope over the clients that share them, in logarithms | <= 0.1
bound | Theorem 1 is above the gap of Local SGD | least bound over mean gap | >= 1 | full run
Expected by us
same | clients that share a minimiser, or a Hessian, are led to the pooled solution
    | largest distance | <= 1e-12
spread | the distance is proportional to the spread of the minimisers | relative error | <= 1e-10
between | with a slow link Local SGD's time to a gap is least at an E between the ends
    | time at the ends over the least time | >= 1.5 | full run
slower | a slow link has a larger best E than a fast one | ratio of the best E | >= 2 | full run
late | whatever E, late gaps are what gradient noise alone costs | largest ratio | <= 1.5 | full run
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims of the closed form and of the theorem."""
    limit, bound = select(rows, part="limit"), select(rows, part="bound")
    by_share = [select(limit, step_share=share) for share in config.step_shares]
    few, many = (select(limit, num_steps=config.many_steps[end]) for end in (0, -1))
    late = [row for row in bound if row["step"] > config.sgd_total_steps / 2]
    times = select(rows, part="time")
    slow, fast = (column(times, link) for link in ("slow", "fast"))
    numbers = {
        "difference": column(select(rows, part="rounds"), "difference"),
        "few": column(few, "distance"),
        "growth": [np.diff(column(own, "distance")[:-1]).min() for own in by_share],
        "many": column(many, "from_many_steps"),
        "fewer": [own[0]["rounds"] / own[1]["rounds"] / 2 for own in by_share],
        "between": slow[[0, -1]] / slow.min(),
        "slower": times[slow.argmin()]["num_steps"] / times[fast.argmin()]["num_steps"],
        "bound": column(bound, "bound") / column(bound, "gap"),
        "late": column(late, "gap") / column(late, "limit"),
    }
    if knobs := select(rows, part="heterogeneity"):
        spread = select(knobs, knob="minimisers", seed=config.instances[0])[1:]
        slopes = column(spread, "distance") / column(spread, "value")
        numbers["same"] = column(select(knobs, value=0.0), "distance")
        numbers["spread"] = slopes.max() / slopes.min() - 1
        alike = [[row["clients"], row["gamma"]] for row in select(rows, part="iid")]
        numbers["iid"] = abs(np.polyfit(*np.log(alike).T, deg=1)[0] - 1)
    return judged(STATEMENTS, numbers, quick=True)


_ROUNDS, _VERTICAL = "communication round", r"distance $|x_{FGD} - x_{LS}|$"


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the limits, the rounds and the bound."""
    knobs, share = select(rows, part="heterogeneity"), config.step_shares[0]
    limits = [
        (select(rows, part="limit", step_share=other)[:-1], f"limit of FedGD, $s = {other:g}/L$", c)
        for other, c in shaded(config.step_shares)
    ]
    far = limits[0][0][0]["many_steps_distance"], "mean of the local minimisers"
    curves = [Curve(own, "distance", colour, text, "o-") for own, text, colour in limits]
    ends = [Chart("num_steps", ("local steps $E$", _VERTICAL), curves, "", "x", far)]
    for knob in ("minimisers", "Hessians") if knobs else ():
        own = [row for row in select(knobs, knob=knob.lower()) if row["value"]]
        text = f"$E = {config.heterogeneity_steps}$, mean and range of {len(config.instances)} "
        curves = [Curve(own, "distance", "#0072B2", f"{text}instances", "o-")]
        labels = f"spread of the {knob} (0 at 0)", _VERTICAL
        ends.append(Chart("value", labels, curves, "", "xy"))
    simulated = [
        (select(rows, part="rounds", step_share=share, num_steps=steps), colour, f"$E = {steps}$")
        for steps, colour in shaded(config.simulated_steps)
    ]
    distances = [Curve(own, "distance", *look) for own, *look in simulated]
    differences = [Curve(own, "difference", *look) for own, *look in simulated]
    needed = [Curve(own, "rounds", colour, text, "o-") for own, text, colour in limits]
    closed = "difference to the closed form"
    until = f"rounds until {power(config.near_limit)} is left"
    # A logarithmic axis cannot show a difference of exactly zero.
    beside = (1e-10, "tolerance"), (1e-17, 1e-9)
    rounds = [
        Chart("round", (_ROUNDS, "$|x_t - x_{LS}|$"), distances, "", "y"),
        Chart("round", (_ROUNDS, closed), differences, "", "y", *beside),
        Chart("num_steps", ("local steps $E$", until), needed, "", "xy"),
    ]
    bounds = []
    for name in config.sgd_problems:
        curves = []
        for steps, colour in shaded(config.sgd_num_steps):
            own = select(rows, part="bound", problem=name, num_steps=steps)
            curves.append(Curve(own, "gap", colour, f"mean gap, $E = {steps}$"))
            curves.append(Curve(own, "bound", colour, f"bound, $E = {steps}$", "--"))
            curves.append(Curve(own, "limit", "#D55E00", "exact limit of the gap", ":"))
        labels = "local steps $T$", "$f(x_T) - f^*$"
        bounds.append(Chart("step", labels, curves, name, "xy"))
    times, alike = select(rows, part="time"), select(rows, part="iid")
    labels = "local steps $E$", f"time to a gap of {times[0]['gap']:.1g}, in local steps"
    curves = [Curve(times, k, c, f"{k} link: {LINKS[k]} a round", "o-") for k, c in shaded(LINKS)]
    costs = [Chart("num_steps", labels, curves, f"Local SGD, {config.sgd_problems[0]}", "xy")]
    if alike:
        curves = [Curve(alike, "gamma", "#0072B2", r"$\Gamma$, mean and range", "o-")]
        curves.append(Curve(alike, "law", "#000000", "its mean, $d (K - 1) / (2 m)$", ":"))
        labels = "clients $K$ that share $m$ iid rows", r"$\Gamma$"
        costs.append(Chart("clients", labels, curves, "least squares", "xy"))
    above = f"Local SGD below Theorem 1 (mean and 10 to 90 per cent of {config.sgd_seeds} seeds)"
    ends_at = "Where FedGD ends, against the least-squares solution"
    return [
        *figure(directory / "limits.png", ends_at, ends),
        *figure(directory / "rounds.png", f"Rounds of FedGD at $s = {share:g}/L$", rounds),
        *figure(directory / "bound.png", above, bounds, height=3.0),
        *figure(directory / "links.png", "The best $E$" + ", and iid clients" * bool(alike), costs),
    ]


EXPERIMENT = Study(
    title="FedGD and Local SGD on heterogeneous clients",
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=draw,
    x64=True,
    keys={
        Literal["ridge", "logistic"]: "sgd_problems",
        Count: "sizes dim many_steps[3+] simulated_steps num_rounds heterogeneity_steps "
        "sgd_num_steps sgd_total_steps sgd_seeds sgd_evaluations",
        CountOrZero: "data_seed instances",
        Positive: "step_shares near_limit concentration",
        NonNegative: "distances[2+] spreads[2+]",
        str: "data_dir",
    },
    requires={
        "step_shares below 2, for which steps are stable": lambda own: max(own.step_shares) < 2,
        "near_limit below 1": lambda own: own.near_limit < 1,
        "sgd_evaluations of at least 2": lambda own: own.sgd_evaluations > 1,
        "sgd_total_steps of at least sgd_num_steps": lambda own: (
            own.sgd_total_steps >= max(own.sgd_num_steps)
        ),
    },
)
