"""Rows of both methods and of the pooled lasso for each problem, and tables by cell."""

import concurrent.futures
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from fcojax.experiments import Config, Row, Summary, column, select
from fcojax_sites.studies.sites.problem import Sites, draw
from fcojax_sites.studies.sites.runs import METHODS, common_strength, models, optimum

_FLOAT = 8  # bytes per number sent


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all designs and seeds; each device runs one problem in its own thread.

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
    with jax.enable_x64(True):  # threads do not inherit JAX's context
        design, seed = place
        return list(one_problem(config, design, seed, device))


def one_problem(config: Config, design: str, seed: int, device: Any) -> Iterator[Row]:
    """Yield the pooled lasso's row, and a row for each method, number of steps and of rounds."""
    sites, place = draw(config, design, seed), {"design": design, "seed": seed}
    choice = common_strength(config, sites, device)
    strength, train, validation = choice.strength, sites.pooled, sites.pooled_validation
    best = optimum(config, sites, strength, device)
    least = train.loss(best) + strength * np.abs(best).sum()
    yield (
        {
            "part": "pooled",
            "strength": strength,
            "objective": least,
            "duality_gap": train.duality_gap(best, np.array(strength)),
            "local_duality_gap": choice.duality_gap,
            "least_place": min(choice.places),
            "largest_place": max(choice.places),
            "smoothness": sites.smoothness,
        }
        | place
        | _scores(sites, strength, best)
    )
    for num_steps, method in itertools.product(config.num_steps, METHODS):
        found = models(config, sites, strength, method, num_steps, device)
        errors = validation.loss(found)
        errors = np.where(np.isfinite(errors), errors, np.inf)
        for k, num_rounds in enumerate(config.num_rounds):
            chosen = int(errors[:, k].argmin())  # ties go to the smallest rate
            model = found[chosen, k]
            row = {
                "part": "run",
                "num_steps": num_steps,
                "method": method,
                "round": num_rounds,
                "rate": config.rate_shares[chosen] if method == "fed_dual_avg" else None,
                "gap": train.loss(model) + strength * np.abs(model).sum() - least,
            } | uploads(config, method, num_rounds)
            yield row | place | _scores(sites, strength, model)


def uploads(config: Config, method: str, num_rounds: int) -> Row:
    """Return the bytes of one fit, without and with the choice of its step size.

    Each site sends a vector per round, and its strength. FedDualAvg also runs with all other step
    sizes; each site sends its validation error for each of them and receives the choice.

    Example:
      >>> from ml_collections import ConfigDict
      >>> config = ConfigDict({"rows": (400, 240, 160), "dim": 600, "rate_shares": (0.1, 0.3, 1.0)})
      >>> uploads(config, "averaged_cd", 100), uploads(config, "fed_dual_avg", 20)
      ({'fit_bytes': 1440000, 'total_bytes': 1440024}, {'fit_bytes': 288000, 'total_bytes': 864120})
    """
    each = _FLOAT * len(config.rows)
    fit, rates = num_rounds * each * config.dim, len(config.rate_shares)
    total = rates * fit + each * (rates + 2) if method == "fed_dual_avg" else fit + each
    return {"fit_bytes": fit, "total_bytes": total}


def _scores(sites: Sites, strength: float, model: np.ndarray) -> Row:
    features, labels = sites.test
    return {
        "f1": f1(model, sites.truth),
        "active": int((model != 0).sum()),
        "mapping": float(sites.pooled.mapping(model, strength)),
        "test_error": float(np.mean((labels - features @ model) ** 2)),
    }


def f1(model: np.ndarray, truth: np.ndarray) -> float:
    """Return the F1 score of the nonzero entries as an estimate of the support.

    Example:
      >>> f1(np.array([2.0, 0.1, 0.0]), np.array([1.0, 0.0, 0.0]))
      0.6666666666666666
    """
    found, true = model != 0, truth != 0
    return float(2 * (found & true).sum() / (found.sum() + true.sum()))


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return all measures after the last round and at the common cap, and F1 at every budget."""
    last, capped = max(config.num_rounds), rounds_at_cap(config)
    shown = [("fed_dual_avg", last), ("fed_dual_avg", capped), ("averaged_cd", last)]
    pooled = [select(rows, part="pooled", design=design) for design in config.designs]
    cells_shown = [
        {"design": design, "E": num_steps, "method": METHODS[method], "R": num_rounds}
        | _means(at(rows, design, num_steps, method, num_rounds))
        for design, num_steps in cells(config)
        for method, num_rounds in dict.fromkeys(shown)
    ]
    return {
        "best": cells_shown
        + [
            {"design": design, "method": "lasso on all rows"} | _means(own)
            for design, own in zip(config.designs, pooled, strict=True)
        ],
        "means at every budget": [
            {"design": design, "E": num_steps, "R": num_rounds, "method": METHODS[method]}
            | {name: float(column(found, name).mean()) for name in ("f1", "gap", "active")}
            for design, num_steps in cells(config)
            for num_rounds in config.num_rounds
            for method in METHODS
            for found in [at(rows, design, num_steps, method, num_rounds)]
        ],
    }


def _means(found: list[Row]) -> Row:
    f1s = column(found, "f1")
    entry = {"F1": float(f1s.mean()), "standard error": standard_error(f1s)}
    if "gap" in found[0]:
        entry["gap"] = float(column(found, "gap").mean())
    for name, text in (("active", "active"), ("mapping", "KKT"), ("test_error", "test error")):
        entry[text] = float(column(found, name).mean())
    for name, text in (("fit_bytes", "kB of the fit"), ("total_bytes", "kB in total")):
        if name in found[0]:
            entry[text] = found[0][name] / 1000
    return entry


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of the mean; NaN for a single value."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def cells(config: Config) -> list[tuple[str, int]]:
    """Return the designs with each number of local steps."""
    return [(design, steps) for design in config.designs for steps in config.num_steps]


def rounds_at_cap(config: Config) -> int:
    """Return the most rounds of FedDualAvg that send no more in total than the whole baseline run.

    The cap is the baseline's bytes plus 96 for the validation errors, which only FedDualAvg sends.
    """
    last = max(config.num_rounds)
    extra = _FLOAT * len(config.rows) * (len(config.rate_shares) + 1)
    cap = uploads(config, "averaged_cd", last)["total_bytes"] + extra
    return max(
        (r for r in config.num_rounds if uploads(config, "fed_dual_avg", r)["total_bytes"] <= cap),
        default=min(config.num_rounds),
    )


def at(rows: list[Row], design: str, num_steps: int, method: str, num_rounds: int) -> list[Row]:
    """Return one row per seed, in the order of the seeds."""
    found = select(
        rows, part="run", design=design, num_steps=num_steps, method=method, round=num_rounds
    )
    return sorted(found, key=lambda row: row["seed"])
