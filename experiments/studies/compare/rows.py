"""Rows and summary: limits with the safe step, and curves with tuned steps."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, select
from experiments.report.summary import final_from
from experiments.report.tables import best_point
from experiments.studies.compare.methods import METHODS
from experiments.studies.compare.problem import Task, lasso
from experiments.study import Config
from fcojax.extend import is_schedule, num_points, take
from fcojax.problems import factored_loss
from fcojax.types import Array


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all tables, problem by problem."""
    for problem in config.problems:
        task, facts = lasso(config, problem)
        yield {"part": "problem", "problem": problem} | facts
        for name in config.methods:
            for row in limits(config, task, name):
                yield {"part": "limit", "problem": problem, "method": name} | row
            for row in tuned(config, task, name, config[problem].num_rounds):
                yield {"problem": problem, "method": name} | row


def limits(config: Config, task: Task, name: str) -> Iterator[Row]:
    """Yield the end points of a method with the safe step, and with half of it."""
    step = config.limit_prox_step * task.smoothness if METHODS[name].tuned == "prox" else 1.0
    num_rounds = config.own_limit_rounds.get(name, config.limit_rounds)
    for share in (1.0, 0.5):
        grid = points(config, task, name, [share * step])
        history, _ = run(config, task, name, grid, num_rounds, num_rounds // 10)
        yield {
            "step_share": share,
            **{name: float(history[name][0, :, -1].mean()) for name in ("distance", "nonzeros")},
        }


def tuned(config: Config, task: Task, name: str, num_rounds: int) -> Iterator[Row]:
    """Yield all points of a method's grid, and the curves of the best one."""
    factors = config.prox_factors if METHODS[name].tuned == "prox" else config.step_factors
    grid = points(config, task, name, factors)
    history, floats = run(config, task, name, grid, num_rounds, 1)
    within = history["distance"] <= config.tolerance
    reached, first = within.any(axis=-1), within.argmax(axis=-1)
    rounds = np.where(reached, first + 1, np.inf).mean(axis=-1)
    sent = {
        f"floats_{way}": np.where(
            reached, np.take_along_axis(total, first[..., None], axis=-1)[..., 0], np.inf
        ).mean(axis=-1)
        for way, total in floats.items()
    }
    lasts = history["distance"][..., -1].mean(axis=-1)
    best = np.lexsort([lasts, rounds])[0]  # NaN sorts last
    supports = np.moveaxis(history["support"], 2, 0)
    settled = final_from(supports, 1 + np.arange(num_rounds)).max(axis=(1, 2))
    final = np.where(np.isfinite(lasts), settled, np.nan)
    for i in range(num_points(grid)):
        row = {"part": "point", "rounds": float(rounds[i])}
        row |= {name: float(numbers[i]) for name, numbers in sent.items()}
        row |= {"last_distance": float(lasts[i]), "best": bool(i == best), "final": float(final[i])}
        fields = take(grid, i)._asdict().items()
        rates = {field: float(x) for field, x in fields if not is_schedule(x)}
        yield row | rates
    for tolerance in config.tolerances:
        reached, first = (
            found(history["distance"][best] <= tolerance, axis=-1) for found in (np.any, np.argmax)
        )
        row = {"part": "reached", "tolerance": tolerance}
        row["rounds"] = float(np.where(reached, first + 1, np.inf).mean())
        for way, total in floats.items():
            until = np.take_along_axis(total[best], first[:, None], axis=-1)[:, 0]
            row[f"floats_{way}"] = float(np.where(reached, until, np.inf).mean())
        yield row
    for j, distances in enumerate(history["distance"][best]):
        for r, distance in enumerate(distances):
            yield {
                "part": "curve",
                "seed": config.seeds[j],
                "round": r + 1,
                "distance": float(distance),
                "floats": float(sum(total[best, j, r] for total in floats.values())),
            }


def points(config: Config, task: Task, name: str, factors: Sequence[float]) -> Any:
    """Return the grid of a method, with step sizes as multiples of the safe one."""
    method, safe = METHODS[name], 1 / task.smoothness
    if method.tuned == "round" and not method.one_step:
        safe /= task.num_steps
    steps = [factor * safe for factor in factors]
    fields: dict[str, Any] = {"penalty_scale": task.scale} | method.fixed(
        task.smoothness, task.least_curvature
    )
    if method.tuned == "prox":
        fields["prox_step"] = steps
        fields["client_lr"] = [1 / (task.smoothness + 1 / eta) for eta in steps]
        whole = {k: v if isinstance(v, list) else [v] * len(steps) for k, v in fields.items()}
        return fcojax.grid.zipped(method.hparams, **whole)
    fields["client_lr"] = steps
    if "server_lr" in method.hparams._fields:
        fields["server_lr"] = list(config.server_lr) if len(factors) > 1 else [1.0]
    whole = {k: v if isinstance(v, list) else [v] for k, v in fields.items()}
    return fcojax.grid.product(method.hparams, **whole)


def run(
    config: Config, task: Task, name: str, grid: Any, num_rounds: int, eval_every: int
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the history, and the cumulative floats up and down, axes [points, seeds, rounds]."""
    method, start = METHODS[name], jnp.zeros(config.dim)
    random = method.half or name in ("skipping", "fed_dr_late")
    keys = jax.vmap(jax.random.key)(jnp.asarray(config.seeds if random else config.seeds[:1]))
    work = fcojax.local_steps(1 if method.one_step else task.num_steps)
    half = fcojax.uniform_cohort(cohort_size=max(1, config.num_clients // 2))
    cohort = half if method.half else fcojax.everyone()
    _, history = fcojax.sweep(
        method.build(factored_loss, task.penalty),
        grid,
        start,
        task.data,
        keys,
        fcojax.Plan(work, cohort),
        num_rounds=num_rounds,
        eval_every=eval_every,
        observe=_observe,
        context=jnp.asarray(task.optimum),
    )
    history = jax.tree.map(np.asarray, history)
    sent = {
        way: np.cumsum(history[f"bytes_{way}"], axis=-1) / start.itemsize for way in ("up", "down")
    }
    return history, sent


def _observe(hparams: Any, model: Array, optimum: Array) -> dict[str, Array]:
    return {
        "distance": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum),
        "nonzeros": jnp.sum(model != 0),
        "support": model != 0,
    }


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return, by problem and method, the limits and the best point of the grid."""
    tables: Summary = {"best": [], "exchanges; thousands of floats": []}
    for problem in config.problems:
        own = select(rows, problem=problem)
        [facts] = select(own, part="problem")
        tables[problem] = {"problem": facts, "methods": {}}
        for name in config.methods:
            far, near = select(own, method=name, part="limit")
            grid = select(own, method=name, part="point")
            [best] = select(grid, best=True)
            tables["best"].append(
                {"problem": problem, "method": METHODS[name].text}
                | best_point(grid, _TUNED)
                | {"exchanges": best["rounds"], "limit": far["distance"]}
                | {"support final from round": best["final"]}
            )
            reached = select(own, method=name, part="reached")
            tables["exchanges; thousands of floats"].append(
                {"problem": problem, "method": METHODS[name].text}
                | {f"to {row['tolerance']:g}": _reached(row) for row in reached}
                | {"support final from round": best["final"]}
            )
            tables[problem]["methods"][METHODS[name].text] = {
                "limit": far["distance"],
                "limit at half the step": near["distance"],
                "nonzeros": far["nonzeros"],
            } | {key: value for key, value in best.items() if key not in _KEYS}
    return tables


def _reached(row: Row) -> str:
    if row["rounds"] is None or not np.isfinite(row["rounds"]):
        return "-"
    return f"{row['rounds']:.0f}; {(row['floats_up'] + row['floats_down']) / 1000:.1f}"


_KEYS = ("part", "problem", "method", "best", "final")
_TUNED = ("client_lr", "server_lr", "prox_step")
