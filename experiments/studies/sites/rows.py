"""What the validation rows choose for each method, drawn problem by drawn problem."""

import itertools
from typing import NamedTuple

import jax
import numpy as np

from experiments.studies.sites.problem import Sites, draw
from experiments.studies.sites.runs import (
    METHODS,
    Models,
    begun,
    optimum_begun,
    points,
    strength_shares,
)


class Task(NamedTuple):
    """One drawn problem with its runs, which may not have ended yet."""

    design: str
    seed: int
    sites: Sites
    optimum: Models
    runs: dict[tuple[int, str], Models]


def study(config):
    """The rows of all designs and seeds; every device has a problem, and the next one waiting."""
    places = list(itertools.product(config.designs, range(config.num_seeds)))
    devices, waiting = jax.local_devices(), []
    for first in range(0, len(places), len(devices)):
        batch = zip(places[first : first + len(devices)], devices, strict=False)
        tasks = [_begin(config, design, seed, device) for (design, seed), device in batch]
        for task in waiting:
            yield from judged(config, task)
        waiting = tasks
    for task in waiting:
        yield from judged(config, task)


def _begin(config, design, seed, device) -> Task:
    sites = draw(config, design, seed)
    runs = {
        (num_steps, method): begun(config, sites, method, num_steps, device)
        for num_steps in config.num_steps
        for method in METHODS
    }
    return Task(design, seed, sites, optimum_begun(config, sites, device), runs)


def judged(config, task: Task):
    """The pooled lasso's row, and one for each method, number of steps and number of rounds."""
    sites, place = task.sites, {"design": task.design, "seed": task.seed}
    shares, optimum = strength_shares(config), task.optimum()
    strengths = np.array(shares) * sites.scale_max
    least = _objective(sites, optimum, strengths)
    best = int(sites.validation.loss(optimum).argmin())
    yield (
        {"part": "pooled"}
        | place
        | {
            "strength": shares[best],
            "objective": least[best],
            "duality_gap": sites.train.duality_gap(optimum, strengths).max(),
            "noise": sites.noise,
            "smoothness": sites.smoothness,
            "scale_max": sites.scale_max,
        }
        | _scores(config, sites, optimum[best])
    )
    for (num_steps, method), wait in task.runs.items():
        models, grid = wait(), points(config, sites, method)[1]
        judges = _finite(sites.validation.loss(models))
        fixed = [i for i, (_, share) in enumerate(grid) if share == shares[best]]
        gaps = _finite(_objective(sites, models[fixed], strengths[best]) - least[best])
        for look, num_rounds in enumerate(config.num_rounds):
            chosen = int(judges[:, look].argmin())
            there = int(judges[fixed, look].argmin())
            rate, share = grid[chosen]
            yield (
                {"part": "run"}
                | place
                | {
                    "num_steps": num_steps,
                    "method": method,
                    "round": num_rounds,
                    "rate": rate,
                    "strength": share,
                    "gap": gaps[there, look],
                    "relative_gap": gaps[there, look] / least[best],
                    "gap_rate": grid[fixed[there]][0],
                    "least_gap": gaps[:, look].min(),
                }
                | _scores(config, sites, models[chosen, look])
            )


def _objective(sites: Sites, models, strengths):
    return sites.train.loss(models) + strengths * np.abs(models).sum(axis=-1)


def _finite(values):
    """With infinity for what has diverged."""
    return np.where(np.isfinite(values), values, np.inf)


def _scores(config, sites: Sites, model):
    return {
        "validation_loss": float(sites.validation.loss(model)),
        "nonzeros": int((model != 0).sum()),
        "f1": f1(model, sites.truth, 0.0),
        "f1_above_cut": f1(model, sites.truth, config.cut),
    }


def f1(model: np.ndarray, truth: np.ndarray, cut: float) -> float:
    """The F1 score of the entries above ``cut`` in size, as a guess of the truth's support.

    Example:
      >>> f1(np.array([2.0, 0.1, 0.0]), np.array([1.0, 0.0, 0.0]), cut=0.0)
      0.6666666666666666
    """
    found, true = np.abs(model) > cut, truth != 0
    return float(2 * (found & true).sum() / (found.sum() + true.sum()))
