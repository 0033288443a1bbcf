"""What the validation rows choose for each method, drawn problem by drawn problem."""

import concurrent.futures
import functools
import itertools

import jax
import numpy as np

from experiments.studies.sites.problem import Sites, draw
from experiments.studies.sites.runs import METHODS, models, optimum, points, strength_shares


def study(config):
    """The rows of all designs and seeds; every device has a problem, and a thread that drives it.

    What one thread dispatches runs in turn, whichever the device is.
    """
    places = list(itertools.product(config.designs, range(config.num_seeds)))
    devices, alone = jax.local_devices(), functools.partial(_in_thread, config)
    with concurrent.futures.ThreadPoolExecutor(len(devices)) as threads:
        for first in range(0, len(places), len(devices)):
            batch = places[first : first + len(devices)]
            for rows in threads.map(alone, batch, devices[: len(batch)]):
                yield from rows


def _in_thread(config, place, device):
    with jax.enable_x64(False):  # a thread knows no context of the one that started it
        design, seed = place
        return list(one_problem(config, design, seed, device))


def one_problem(config, design, seed, device):
    """The pooled lasso's row, and one for each method, number of steps and number of rounds."""
    sites, place = draw(config, design, seed), {"design": design, "seed": seed}
    shares, pooled = strength_shares(config), optimum(config, sites, device)
    strengths = np.array(shares) * sites.scale_max
    least = _objective(sites, pooled, strengths)
    best = int(sites.validation.loss(pooled).argmin())
    facts = {
        "strength": shares[best],
        "objective": least[best],
        "duality_gap": sites.train.duality_gap(pooled, strengths).max(),
        "noise": sites.noise,
        "smoothness": sites.smoothness,
        "scale_max": sites.scale_max,
    }
    yield {"part": "pooled"} | place | facts | _scores(config, sites, pooled[best])
    runs = [(num_steps, method) for num_steps in config.num_steps for method in METHODS]
    for num_steps, method in runs:
        grid = points(config, sites, method)[1]
        found = models(config, sites, method, num_steps, device)
        losses = _finite(sites.validation.loss(found))
        fixed = [i for i, (_, share) in enumerate(grid) if share == shares[best]]
        gaps = _finite(_objective(sites, found[fixed], strengths[best]) - least[best])
        for look, num_rounds in enumerate(config.num_rounds):
            chosen = int(losses[:, look].argmin())
            there = int(losses[fixed, look].argmin())
            choice = {
                "num_steps": num_steps,
                "method": method,
                "round": num_rounds,
                "rate": grid[chosen][0],
                "strength": grid[chosen][1],
                "gap": gaps[there, look],
                "relative_gap": gaps[there, look] / least[best],
                "gap_rate": grid[fixed[there]][0],
                "least_gap": gaps[:, look].min(),
            }
            scores = _scores(config, sites, found[chosen, look])
            yield {"part": "run"} | place | choice | scores


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
