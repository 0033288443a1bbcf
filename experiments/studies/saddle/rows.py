"""Rows of the grids after a few rounds, and of each method's best point after all rounds."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import fcojax
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.report.tables import best_point
from experiments.studies.shared import Chart, Curve, figure, swept
from experiments.study import Config, from_config
from fcojax import algorithms
from fcojax.extend import memoised, num_points, take
from fcojax.problems import Problem, bilinear
from fcojax.transforms import Mirror, euclidean, l1, on_singular_values, with_box

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


@memoised
def _mirror(num_columns: int, bound: float) -> Mirror:
    """Return the mirror of the l1 norm in a box, or of the nuclear norm in a spectral ball."""
    boxed = with_box(l1(), -bound, bound)
    return euclidean(on_singular_values(boxed) if num_columns else boxed)


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all cases, method by method."""
    for case in config.cases:
        own = config[case]
        sizes = {"num_clients": own.num_clients, "num_columns": own.num_columns}
        problem = from_config(bilinear, config, **sizes, seed=config.data_seed)
        for num_steps, num_rounds in zip(own.num_steps, own.num_rounds, strict=True):
            for name in own.methods:
                place = {"case": case, "num_steps": num_steps, "method": name}
                for row in _tuned(config, own, problem, name, num_steps, num_rounds):
                    yield row | place


def _tuned(
    config: Config, own: Config, problem: Problem, name: str, num_steps: int, num_rounds: int
) -> Iterator[Row]:
    """Yield the points of a method after a few rounds, and the curves of the best after all."""
    numbers = {rate: own[rate] for rate in _RATES} | {"penalty_scale": [config.strength]}
    grid = fcojax.grid.product(algorithms.fed_mid.Hparams, **numbers)
    given, gaps = (config, own, problem, name, num_steps), [0.0]
    if num_points(grid) > 1:
        short = max(1, num_rounds // own.tuning_share)
        gaps = [float(gap) for gap in _run(*given, grid, short, config.seeds[:1])["gap"][:, 0, -1]]
    best = int(np.argmin(np.where(np.isfinite(gaps), gaps, np.inf)))
    for i, gap in enumerate(gaps):
        rates = {field: float(x) for field, x in take(grid, i)._asdict().items()}
        yield {"part": "point", "gap": gap, "best": i == best} | rates
    chosen = jax.tree.map(lambda leaf: leaf[best : best + 1], grid)
    history = _run(*given, chosen, num_rounds, config.seeds)
    for j, k in np.ndindex(history["round"][0].shape):
        when = {"seed": config.seeds[j], "round": int(history["round"][0, j, k])}
        values = {key: float(history[key][0, j, k]) for key in _MEASURES if key in history}
        yield {"part": "curve"} | when | values


def _run(
    config: Config,
    own: Config,
    problem: Problem,
    name: str,
    num_steps: int,
    grid: Any,
    num_rounds: int,
    seeds: Sequence[int],
) -> dict[str, np.ndarray]:
    """Return the measures with axes [points, seeds, evaluations]."""
    mirror, method = _mirror(own.num_columns, config.bound), METHODS[name]
    num_evaluations = min(config.num_evaluations, num_rounds)
    eval_every = num_rounds // num_evaluations
    return swept(
        getattr(algorithms, method.key)(problem.loss, mirror, **method.options),
        grid,
        problem.init(jax.random.key(config.data_seed)),
        problem.train,
        seeds=seeds,
        plan=fcojax.local_steps(num_steps, 1),
        num_rounds=num_evaluations * eval_every,
        eval_every=eval_every,
        observe=lambda hparams, model, context: problem.measures(model),
    )


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return each method's rates and last measures by case, averaged over the seeds."""
    tables: Summary = {"best": []}
    for case in config.cases:
        for num_steps, name in itertools.product(config[case].num_steps, config[case].methods):
            own = select(rows, case=case, num_steps=num_steps, method=name)
            curve, points = (select(own, part=part) for part in ("curve", "point"))
            last = select(curve, round=max(row["round"] for row in curve))
            ends = {
                measure: float(np.mean([row[measure] for row in last]))
                for measure in _MEASURES
                if measure in last[0]
            }
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
            for name, method in ((name, METHODS[name]) for name in own.methods):
                seen, colour = (
                    select(curves, method=name, num_steps=num_steps),
                    style(method.key)[1],
                )
                drawn.append(Curve(seen, measure, colour, method.text, method.line))
            labels = "communication round", _MEASURES[measure]
            log = "y" if measure == "gap" else ""
            charts.append(Chart("round", labels, drawn, f"K = {num_steps}", log))
        title = f"At each method's best rates (range of {len(config.seeds)} seeds)"
        found += figure(directory / f"{case}.png", title, charts, len(measures))
    return found
