"""Rows, summary and figure: limits with the safe step, and rounds with tuned steps."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.ticker import LogLocator

import fcojax
from experiments.report import axes
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, select
from experiments.report.summary import final_from
from experiments.report.tables import best_point
from experiments.studies.compare.methods import METHODS
from experiments.studies.compare.problem import Task, lasso
from experiments.studies.shared import swept
from experiments.study import Config
from fcojax.extend import is_schedule, num_points, take
from fcojax.problems import factored_loss
from fcojax.types import Array

_KEYS = ("part", "problem", "method", "best", "final")
_TUNED = ("client_lr", "server_lr", "prox_step")


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
        ends = {key: float(history[key][0, :, -1].mean()) for key in ("distance", "nonzeros")}
        yield {"step_share": share} | ends


def tuned(config: Config, task: Task, name: str, num_rounds: int) -> Iterator[Row]:
    """Yield all points of a method's grid, and what the best one needs to each distance."""
    factors = config.prox_factors if METHODS[name].tuned == "prox" else config.step_factors
    grid = points(config, task, name, factors)
    history, floats = run(config, task, name, grid, num_rounds, 1)
    distances = history["distance"]
    needed = _until(distances, floats, config.tolerance)
    lasts = distances[..., -1].mean(axis=-1)
    best = np.lexsort([lasts, needed["rounds"]])[0]  # NaN sorts last
    supports = np.moveaxis(history["support"], 2, 0)
    settled = final_from(supports, 1 + np.arange(num_rounds)).max(axis=(1, 2))
    final = np.where(np.isfinite(lasts), settled, np.nan)
    for i in range(num_points(grid)):
        row = {"part": "point"} | {key: float(numbers[i]) for key, numbers in needed.items()}
        row |= {"last_distance": float(lasts[i]), "best": bool(i == best), "final": float(final[i])}
        fields = take(grid, i)._asdict().items()
        yield row | {field: float(x) for field, x in fields if not is_schedule(x)}
    for tolerance in config.tolerances:
        needed = _until(distances, floats, tolerance)
        row = {"part": "reached", "tolerance": tolerance}
        yield row | {key: float(numbers[best]) for key, numbers in needed.items()}


def _until(
    distances: np.ndarray, floats: dict[str, np.ndarray], tolerance: float
) -> dict[str, np.ndarray]:
    """Return the rounds and floats until a distance, means over seeds; infinity if it is not."""
    within = distances <= tolerance
    reached, first = within.any(axis=-1), within.argmax(axis=-1)
    counts = {"rounds": first + 1}
    for way, total in floats.items():
        counts[f"floats_{way}"] = np.take_along_axis(total, first[..., None], axis=-1)[..., 0]
    return {key: np.where(reached, at, np.inf).mean(axis=-1) for key, at in counts.items()}


def points(config: Config, task: Task, name: str, factors: Sequence[float]) -> Any:
    """Return the grid of a method, with step sizes as multiples of the safe one."""
    method, safe = METHODS[name], 1 / task.smoothness
    if method.tuned == "round" and name != "prox_gd":
        safe /= task.num_steps
    steps = [factor * safe for factor in factors]
    fields = {"penalty_scale": task.scale} | method.fixed(task)
    if method.tuned == "prox":
        rates = [1 / (task.smoothness + 1 / eta) for eta in steps]
        same = {key: [value] * len(steps) for key, value in fields.items()}
        return fcojax.grid.zipped(method.hparams, client_lr=rates, prox_step=steps, **same)
    grid = {key: [value] for key, value in fields.items()} | {"client_lr": steps}
    if "server_lr" in method.hparams._fields:
        grid["server_lr"] = list(config.server_lr) if len(factors) > 1 else [1.0]
    return fcojax.grid.product(method.hparams, **grid)


def run(
    config: Config, task: Task, name: str, grid: Any, num_rounds: int, eval_every: int
) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the history, and the cumulative floats up and down, axes [points, seeds, rounds]."""
    method, start = METHODS[name], jnp.zeros(config.dim)
    half = fcojax.uniform_cohort(cohort_size=max(1, config.num_clients // 2))
    history = swept(
        method.build(factored_loss, task.penalty),
        grid,
        start,
        task.data,
        seeds=config.seeds if method.half or method.random else config.seeds[:1],
        plan=fcojax.Plan(
            fcojax.local_steps(1 if name == "prox_gd" else task.num_steps),
            half if method.half else fcojax.everyone(),
        ),
        num_rounds=num_rounds,
        eval_every=eval_every,
        observe=_observe,
        context=jnp.asarray(task.optimum),
    )
    return history, {
        way: np.cumsum(history[f"bytes_{way}"], axis=-1) / start.itemsize for way in ("up", "down")
    }


def _observe(hparams: Any, model: Array, optimum: Array) -> dict[str, Array]:
    return {
        "distance": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum),
        "nonzeros": jnp.sum(model != 0),
        "support": model != 0,
    }


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return, by problem and method, the limits and the best point of the grid."""
    tables: Summary = {"best": []}
    needed: dict[str, Row] = {}
    for problem in config.problems:
        [facts] = select(rows, problem=problem, part="problem")
        methods = {}
        tables[problem] = {"problem": facts, "methods": methods}
        for name in config.methods:
            own, text = select(rows, problem=problem, method=name), METHODS[name].text
            far, near = select(own, part="limit")
            grid, place = select(own, part="point"), {"problem": problem, "method": text}
            [best] = select(grid, best=True)
            final = {"support final from round": best["final"]}
            ends = {"exchanges": best["rounds"], "limit": far["distance"]}
            tables["best"].append(place | best_point(grid, _TUNED) | ends | final)
            reached = select(own, part="reached")
            to = ", ".join(f"{row['tolerance']:g}" for row in reached)
            needed.setdefault(text, {"method": text, "to": to})[problem] = _reached(reached)
            methods[text] = {
                "limit": far["distance"],
                "limit at half the step": near["distance"],
                "nonzeros": far["nonzeros"],
            } | {key: value for key, value in best.items() if key not in _KEYS}
    tables["exchanges; thousands of floats"] = list(needed.values())
    return tables


def _reached(rows: list[Row]) -> str:
    """Return the exchanges to each distance, and the thousands of floats; "-" for none."""
    finite = [row["rounds"] is not None and np.isfinite(row["rounds"]) for row in rows]
    if not any(finite):
        return "-"
    pairs = list(zip(rows, finite, strict=True))
    exchanges = [f"{row['rounds']:.0f}" if ended else "-" for row, ended in pairs]
    floats = [
        f"{(row['floats_up'] + row['floats_down']) / 1000:.1f}" if ended else "-"
        for row, ended in pairs
    ]
    return f"{', '.join(exchanges)}; {', '.join(floats)}"


def draw(config: Config, rows: list[Row], summary: Summary, directory: Path) -> list[Path]:
    """Draw the limits of all methods, a panel for each problem."""
    drawn, panels = axes.panels(len(config.problems), height=1.0 + 0.16 * len(config.methods))
    places = -np.arange(len(config.methods))
    for axis, problem in zip(panels, config.problems, strict=True):
        for share, marker in ((1.0, "o"), (0.5, "<")):
            own = select(rows, part="limit", problem=problem, step_share=share)
            for place, row in zip(places, own, strict=True):
                colour = style(METHODS[row["method"]].name)[1]
                axis.plot(row["distance"], place, marker, color=colour, markersize=5)
            axis.plot([], [], marker, color="#555555", label=f"{share:g} of the safe step")
        kind, _, groups = problem.partition("_")
        axes.describe(axis, "", "", title=f"{kind} Hessians" + ",\ngroups" * bool(groups), log="x")
        axis.xaxis.set_major_locator(LogLocator(numticks=3))
        axis.minorticks_off()
        axis.set_yticks(
            places, [METHODS[name].text * (axis is panels[0]) for name in config.methods]
        )
        axis.set_ylim(-len(config.methods), 1)
    title = f"Relative distance to the optimum after {config.limit_rounds} rounds"
    return [axes.finish(drawn, directory / "limits.png", title, 2)]
