"""Rows of the grids after a few rounds, and of each method's best point after all rounds."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, select
from experiments.report.tables import best_point
from experiments.studies.saddle.methods import METHODS, mirror
from experiments.study import Config
from fcojax import algorithms
from fcojax.extend import num_points, take
from fcojax.problems import Problem, bilinear

_Rates = algorithms.fed_mid.Hparams


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all cases, method by method."""
    for case in config.cases:
        own = config[case]
        problem = bilinear(
            num_clients=own.num_clients,
            num_examples=config.num_examples,
            shape=tuple(config.shape),
            num_columns=own.num_columns,
            bound=config.bound,
            strength=config.strength,
            noise_scale=config.noise_scale,
            seed=config.data_seed,
        )
        for num_steps, num_rounds in zip(own.num_steps, own.num_rounds, strict=True):
            for name in own.methods:
                place = {"case": case, "num_steps": num_steps, "method": name}
                grid = fcojax.grid.product(
                    _Rates,
                    client_lr=own.client_lr,
                    server_lr=own.server_lr,
                    penalty_scale=[config.strength],
                )
                run = functools.partial(_run, config, own, problem, name, num_steps)
                gaps = [0.0]
                if num_points(grid) > 1:
                    short = max(1, num_rounds // own.tuning_share)
                    tuned = run(grid, short, config.seeds[:1])
                    gaps = [float(gap) for gap in tuned["gap"][:, 0, -1]]
                best = int(np.argmin(np.where(np.isfinite(gaps), gaps, np.inf)))
                for i, gap in enumerate(gaps):
                    rates = {field: float(x) for field, x in take(grid, i)._asdict().items()}
                    yield {"part": "point", "gap": gap, "best": i == best} | place | rates
                chosen = jax.tree.map(lambda leaf, at=best: leaf[at : at + 1], grid)
                history = run(chosen, num_rounds, config.seeds)
                yield from _curves(config, history, place)


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
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds))
    algorithm = METHODS[name].build(problem.loss, mirror(own.num_columns, config.bound))
    num_evaluations = min(config.num_evaluations, num_rounds)
    eval_every = num_rounds // num_evaluations
    history = fcojax.sweep(
        algorithm,
        grid,
        problem.init(jax.random.key(config.data_seed)),
        problem.train,
        keys,
        fcojax.Plan(fcojax.local_steps(num_steps, 1)),
        num_rounds=num_evaluations * eval_every,
        eval_every=eval_every,
        observe=lambda hparams, model, context: problem.measures(model),
    )[1]
    return jax.tree.map(np.asarray, history)


def _curves(config: Config, history: dict[str, np.ndarray], place: Row) -> Iterator[Row]:
    measures = [name for name in ("gap", "density", "rank_x", "rank_y") if name in history]
    for j, seed in enumerate(config.seeds):
        for k, at in enumerate(history["round"][0, j]):
            values = {name: float(history[name][0, j, k]) for name in measures}
            yield {"part": "curve", "seed": seed, "round": int(at)} | place | values


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return each method's rates and last measures by case, averaged over the seeds."""
    tables: Summary = {"best": []}
    for case in config.cases:
        for num_steps in config[case].num_steps:
            table = tables[f"{case}, K = {num_steps}"] = []
            for name in config[case].methods:
                own = select(rows, case=case, num_steps=num_steps, method=name)
                curve = select(own, part="curve")
                last = select(curve, round=max(row["round"] for row in curve))
                [best] = select(own, part="point", best=True)
                entry: Row = {"method": METHODS[name].text}
                entry |= {rate: best[rate] for rate in ("client_lr", "server_lr")}
                ends = {
                    measure: float(np.mean([row[measure] for row in last]))
                    for measure in ("gap", "density", "rank_x", "rank_y")
                    if measure in last[0]
                }
                table.append(entry | ends)
                rates = best_point(select(own, part="point"), ("client_lr", "server_lr"))
                where = {"case": case, "K": num_steps, "method": METHODS[name].text}
                tables["best"].append(where | rates | ends)
    return tables
