"""Rows of what validation chooses for each method, problem by problem, and tables by cell."""

import concurrent.futures
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from experiments.report.rows import Row, Summary, column, select
from experiments.studies.sites.problem import Sites, draw
from experiments.studies.sites.runs import METHODS, models, optimum, points, strength_shares
from experiments.study import Config


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all designs and seeds; each device has a problem and a thread.

    A single thread would run the devices' programs one after the other.
    """
    problems = list(itertools.product(config.designs, range(config.num_seeds)))
    devices, run = jax.local_devices(), functools.partial(_in_thread, config)
    with concurrent.futures.ThreadPoolExecutor(len(devices)) as threads:
        for first in range(0, len(problems), len(devices)):
            batch = problems[first : first + len(devices)]
            for rows in threads.map(run, batch, devices[: len(batch)]):
                yield from rows


def _in_thread(config: Config, place: tuple[str, int], device: Any) -> list[Row]:
    with jax.enable_x64(False):  # threads do not inherit the context
        design, seed = place
        return list(one_problem(config, design, seed, device))


def one_problem(config: Config, design: str, seed: int, device: Any) -> Iterator[Row]:
    """Yield the pooled lasso's row, and one for each method, number of steps and of rounds."""
    sites, place = draw(config, design, seed), {"design": design, "seed": seed}
    shares, pooled = strength_shares(config), optimum(config, sites, device)
    strengths = np.array(shares) * sites.scale_max
    least = _objective(sites, pooled, strengths)
    best = int(sites.validation.loss(pooled).argmin())
    facts = {
        "strength": shares[best], "objective": least[best],
        "duality_gap": sites.train.duality_gap(pooled, strengths).max(), "noise": sites.noise,
        "smoothness": sites.smoothness, "scale_max": sites.scale_max,
    }  # fmt: skip
    yield {"part": "pooled"} | place | facts | _scores(config, sites, pooled[best])
    runs = [(num_steps, method) for num_steps in config.num_steps for method in METHODS]
    for num_steps, method in runs:
        grid = points(config, sites, method)[1]
        found = models(config, sites, method, num_steps, device)
        losses = _finite(sites.validation.loss(found))
        fixed = [i for i, (_, share) in enumerate(grid) if share == shares[best]]
        gaps = _finite(_objective(sites, found[fixed], strengths[best]) - least[best])
        for k, num_rounds in enumerate(config.num_rounds):
            chosen = int(losses[:, k].argmin())
            at_fixed = int(losses[fixed, k].argmin())
            choice = {
                "num_steps": num_steps, "method": method, "round": num_rounds,
                "rate": grid[chosen][0], "strength": grid[chosen][1], "gap": gaps[at_fixed, k],
                "relative_gap": gaps[at_fixed, k] / least[best],
                "gap_rate": grid[fixed[at_fixed]][0], "least_gap": gaps[:, k].min(),
            }  # fmt: skip
            scores = _scores(config, sites, found[chosen, k])
            yield {"part": "run"} | place | choice | scores


def _objective(sites: Sites, models: np.ndarray, strengths: np.ndarray) -> np.ndarray:
    return sites.train.loss(models) + strengths * np.abs(models).sum(axis=-1)


def _finite(values: np.ndarray) -> np.ndarray:
    """Return the values, with infinity for runs that diverged."""
    return np.where(np.isfinite(values), values, np.inf)


def _scores(config: Config, sites: Sites, model: np.ndarray) -> Row:
    return {
        "validation_loss": float(sites.validation.loss(model)),
        "nonzeros": int((model != 0).sum()),
        "f1": f1(model, sites.truth, 0.0),
        "f1_above_cut": f1(model, sites.truth, config.cut),
    }


def f1(model: np.ndarray, truth: np.ndarray, cut: float) -> float:
    """Return the F1 score of the entries above ``cut`` in size as an estimate of the support.

    Example:
      >>> f1(np.array([2.0, 0.1, 0.0]), np.array([1.0, 0.0, 0.0]), cut=0.0)
      0.6666666666666666
    """
    found, true = np.abs(model) > cut, truth != 0
    return float(2 * (found & true).sum() / (found.sum() + true.sum()))


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return choices and F1 by cell, F1 at every budget, and gaps at the largest budget."""
    return {
        "best": [_cell(config, rows, *cell) for cell in cells(config)],
        "F1 at equal budgets": [
            {"design": design, "E": num_steps, "rounds": num_rounds}
            | {
                text: float(column(_at(rows, design, num_steps, name, num_rounds), "f1").mean())
                for name, text in METHODS.items()
            }
            for design, num_steps in cells(config)
            for num_rounds in config.num_rounds
        ],
        f"gaps after {max(config.num_rounds)} rounds": [
            _gaps(config, rows, *cell) for cell in cells(config)
        ],
        "pooled lasso": [
            {"design": design} | {name: float(column(own, name).mean()) for name in _POOLED}
            for design in config.designs
            for own in [select(rows, part="pooled", design=design)]
        ],
    }


_POOLED = ("strength", "nonzeros", "f1", "f1_above_cut", "validation_loss", "objective")


def cells(config: Config) -> list[tuple[str, int]]:
    """Return the designs with each number of local steps."""
    return [(design, steps) for design in config.designs for steps in config.num_steps]


def chosen(config: Config, rows: list[Row], design: str, num_steps: int, method: str) -> list[Row]:
    """Return, for each seed, the row with the least validation loss over the rounds."""
    own = select(rows, part="run", design=design, num_steps=num_steps, method=method)
    return [
        min(select(own, seed=seed), key=lambda row: row["validation_loss"])
        for seed in range(config.num_seeds)
    ]


def differences(
    config: Config, rows: list[Row], design: str, num_steps: int, measure: str = "f1"
) -> np.ndarray:
    """Return FedDualAvg's measure minus that of averaged coordinate descent, for each seed."""
    ours, theirs = (
        column(chosen(config, rows, design, num_steps, method), measure) for method in METHODS
    )
    return ours - theirs


def gaps_at_the_end(
    config: Config, rows: list[Row], design: str, num_steps: int, method: str, measure: str = "gap"
) -> np.ndarray:
    """Return the gap of each seed at the largest budget; infinity for a run that diverged."""
    found = column(_at(rows, design, num_steps, method, max(config.num_rounds)), measure)
    return np.where(np.isnan(found), np.inf, found)


def _at(rows: list[Row], design: str, num_steps: int, method: str, num_rounds: int) -> list[Row]:
    return select(
        rows, part="run", design=design, num_steps=num_steps, method=method, round=num_rounds
    )


def _cell(config: Config, rows: list[Row], design: str, num_steps: int) -> Row:
    entry = {"design": design, "E": num_steps}
    for method, text in METHODS.items():
        own = chosen(config, rows, design, num_steps, method)
        entry |= {f"F1, {text}": float(column(own, "f1").mean())}
        entry |= {f"nonzeros, {text}": float(column(own, "nonzeros").mean())}
        entry |= {f"rounds, {text}": float(np.median(column(own, "round")))}
    for measure, text in (("f1", "difference"), ("f1_above_cut", f"above {config.cut:g}")):
        entry[text] = float(differences(config, rows, design, num_steps, measure).mean())
    return entry


def _gaps(config: Config, rows: list[Row], design: str, num_steps: int) -> Row:
    entry = {"design": design, "E": num_steps}
    for method, text in METHODS.items():
        for measure in ("gap", "relative_gap", "least_gap"):
            found = gaps_at_the_end(config, rows, design, num_steps, method, measure)
            entry[f"{measure.replace('_', ' ')}, {text}"] = float(found.mean())
    return entry
