"""Composite saddle points: Bai and Bullins (ICLR 2024), section 6."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

import fcojax
from experiments.report.claims import Claim, judged
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.report.summary import edges
from experiments.report.tables import best_point
from experiments.studies.shared import Chart, Curve, figure, least, swept
from experiments.study import Config, Study, from_config
from fcojax import algorithms
from fcojax.extend import num_points, take
from fcojax.problems import Problem, bilinear
from fcojax.transforms import euclidean, l1, on_singular_values, with_box
from fcojax.types import Count, CountOrZero, NonNegative, Positive

STATEMENTS = """
Bai and Bullins (ICLR 2024), section 6, Figure 4
gap its fe_dual_ex | vectors: FeDualEx ends at a small gap | duality gap at the end | < 1
away its fe_dual_ex | vectors: about 0.7 of FeDualEx's entries are nonzero
    | distance of the share from 0.7 | < 0.05
density its fed_mip_client
    | vectors: averaging in the primal is dense (FedMiP) | share of nonzeros | > 0.95
fed_mip | vectors: FedMiP ends at a small gap | duality gap at the end | < 1
gap its fed_dual_avg | vectors: FedDualAvg ends at a large gap | duality gap at the end | > 1
gap its fed_mid | vectors: FedMiD ends at a large gap | duality gap at the end | > 1
Bai and Bullins (ICLR 2024), section 6, Figure 5
ranks | matrices: FeDualEx has low ranks | largest rank of both matrices, of all seeds | <= {half}
lead | matrices: FeDualEx has the least gap | the next one's gap beyond it | > 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims on gaps, shares of nonzero entries and ranks at the last round."""
    found, table = [], STATEMENTS.format(half=config.matrices.num_columns // 2)
    places = [(case, steps) for case in config.cases for steps in config[case].num_steps]
    for case, num_steps in places:
        ends = {}
        for name in config[case].methods:
            own = select(rows, part="curve", case=case, num_steps=num_steps, method=name)
            ends[name] = [max(c, key=lambda row: row["round"]) for c in by_seed(own).values()]
        gap, numbers = {name: column(last, "gap") for name, last in ends.items()}, {}
        if "fe_dual_ex" not in ends:
            continue
        if case == "vectors":
            density = {name: column(last, "density") for name, last in ends.items()}
            away = {name: abs(share - 0.7) for name, share in density.items()}
            numbers = {"gap": gap, "density": density, "away": away}
            both = [name for name in ("fed_mip_client", "fed_mip") if name in gap]
            numbers["fed_mip"] = {METHODS[name].text: gap[name] for name in both}
        else:
            ranks = [max(row["rank_x"], row["rank_y"]) for row in ends["fe_dual_ex"]]
            numbers["ranks"] = ranks, {"seeds": len(ranks)}
            others = [own for name, own in gap.items() if name != "fe_dual_ex"]
            if others:
                at_edge = any(_at_edge(rows, case, num_steps, name) for name in gap)
                lead = np.min(others, axis=0) - gap["fe_dual_ex"]
                numbers["lead"] = lead, {"at_edge": at_edge}
        found += judged(table, numbers, f"K = {num_steps}")
    return found


def _at_edge(rows: list[Row], case: str, num_steps: int, method: str) -> bool:
    """Return whether a method's best rates are at the edge of its grid."""
    points = select(rows, part="point", case=case, num_steps=num_steps, method=method)
    best = next((row for row in points if row["best"]), {})
    named = {rate: best[rate] for rate in _RATES if rate in best}
    return bool(edges(named, [tuple(row[rate] for rate in named) for row in points]))


_RATES = ("client_lr", "server_lr")
_MEASURES = {
    "gap": "duality gap",
    "density": "share of nonzero entries",
    "rank_x": "rank of X",
    "rank_y": "rank of Y",
}


class Method(NamedTuple):
    """A row of the tables.

    Attributes:
      text: the name of the method in the tables.
      key: the factory, which gives the colour.
      line: the line style of its curves.
      options: further arguments of the factory.
    """

    text: str
    key: str
    line: str = "-"
    options: dict[str, bool] = {}


_CLIENTS = {"server_prox": False}
METHODS = {
    "fe_dual_ex": Method("FeDualEx", "fe_dual_ex"),
    "fed_mip": Method("FedMiP as printed", "fed_mip", "--"),
    "fed_mip_client": Method("FedMiP, client prox only", "fed_mip", options=_CLIENTS),
    "fed_dual_avg": Method("FedDualAvg", "fed_dual_avg"),
    "fed_mid": Method("FedMiD as printed", "fed_mid", "--"),
    "fed_mid_client": Method("FedMiD, client prox only", "fed_mid", options=_CLIENTS),
}


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all cases, method by method."""
    for case in config.cases:
        own = config[case]
        sizes = {"num_clients": own.num_clients, "num_columns": own.num_columns}
        problem = from_config(bilinear, config, **sizes, seed=config.data_seed)
        # The l1 norm in a box, or the nuclear norm in a spectral ball.
        boxed = with_box(l1(), -config.bound, config.bound)
        mirror = euclidean(on_singular_values(boxed) if own.num_columns else boxed)
        for num_steps, num_rounds in zip(own.num_steps, own.num_rounds, strict=True):
            for name in own.methods:
                place = {"case": case, "num_steps": num_steps, "method": name}
                key, options = METHODS[name].key, METHODS[name].options
                algorithm = getattr(algorithms, key)(problem.loss, mirror, **options)
                for row in _tuned(config, own, problem, algorithm, num_steps, num_rounds):
                    yield row | place


def _tuned(
    config: Config, own: Config, problem: Problem, algorithm: Any, num_steps: int, num_rounds: int
) -> Iterator[Row]:
    """Yield the points of a method after a few rounds, and the curves of the best after all."""
    given = problem.init(jax.random.key(config.data_seed)), problem.train
    work = fcojax.local_steps(num_steps, 1)

    def observe(hparams, model, context):
        return problem.measures(model)

    def run(grid: Any, num_rounds: int, seeds: Sequence[int]) -> dict[str, np.ndarray]:
        number = min(config.num_evaluations, num_rounds)
        every = num_rounds // number
        rounds = {"num_rounds": number * every, "eval_every": every}
        return swept(algorithm, grid, *given, seeds, work, observe=observe, **rounds)

    numbers = {rate: own[rate] for rate in _RATES} | {"penalty_scale": [config.strength]}
    grid, gaps = fcojax.grid.product(algorithms.fed_mid.Hparams, **numbers), np.zeros(1)
    if num_points(grid) > 1:
        gaps = run(grid, max(1, num_rounds // own.tuning_share), config.seeds[:1])["gap"][:, 0, -1]
    best = least(gaps)
    for i, gap in enumerate(gaps):
        yield {"part": "point", "gap": gap, "best": i == best} | take(grid, i)._asdict()
    chosen = jax.tree.map(lambda leaf: leaf[best : best + 1], grid)
    history = run(chosen, num_rounds, config.seeds)
    for j, k in np.ndindex(history["round"][0].shape):
        seen = {key: history[key][0, j, k] for key in ("round", *_MEASURES) if key in history}
        yield {"part": "curve", "seed": config.seeds[j]} | seen


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return each method's rates and last measures by case, averaged over the seeds."""
    tables: Summary = {"best": []}
    for case in config.cases:
        for num_steps, name in itertools.product(config[case].num_steps, config[case].methods):
            own = select(rows, case=case, num_steps=num_steps, method=name)
            curve, points = (select(own, part=part) for part in ("curve", "point"))
            last = select(curve, round=max(row["round"] for row in curve))
            shown = [measure for measure in _MEASURES if measure in last[0]]
            ends = {measure: float(column(last, measure).mean()) for measure in shown}
            [best], text = select(points, best=True), {"method": METHODS[name].text}
            rates = {rate: best[rate] for rate in _RATES}
            tables.setdefault(f"{case}, K = {num_steps}", []).append(text | rates | ends)
            where = {"case": case, "K": num_steps} | text
            tables["best"].append(where | best_point(points, _RATES) | ends)
    return tables


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw one figure per case, with a line of charts for each number of local steps."""
    found = []
    for case in config.cases:
        own, curves = config[case], select(rows, part="curve", case=case)
        measures = ("gap", "rank_x", "rank_y") if own.num_columns else ("gap", "density")
        charts = []
        for num_steps, measure in itertools.product(own.num_steps, measures):
            drawn = []
            for name, (text, key, line, _) in ((name, METHODS[name]) for name in own.methods):
                seen = select(curves, method=name, num_steps=num_steps)
                drawn.append(Curve(seen, measure, style(key)[1], text, line))
            labels = "communication round", _MEASURES[measure]
            log = "y" if measure == "gap" else ""
            charts.append(Chart("round", labels, drawn, f"K = {num_steps}", log))
        title = f"At each method's best rates (range of {len(config.seeds)} seeds)"
        found += figure(directory / f"{case}.png", title, charts, len(measures))
    return found


EXPERIMENT = Study(
    title="Bilinear saddle points: duality gap and structure",
    rows=study,
    summarise=summarise,
    claims=claims,
    figures=draw,
    keys={
        Literal["vectors", "matrices"]: "cases",
        Literal[*METHODS]: "*.methods",
        Count: "num_examples shape[2] num_evaluations *.num_clients *.num_steps *.num_rounds "
        "*.tuning_share",
        CountOrZero: "seeds data_seed *.num_columns",
        Positive: "bound *.client_lr *.server_lr",
        NonNegative: "strength noise_scale",
    },
    requires={
        f"as many {case}.num_rounds as {case}.num_steps": lambda own, case=case: (
            len(own[case].num_rounds) == len(own[case].num_steps)
        )
        for case in ("vectors", "matrices")
    },
)
