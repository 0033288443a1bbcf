"""Rows and tables: every model with its nonzeros and accuracy, and the best at each sparsity."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, select
from experiments.studies.concepts.problem import PENALTY, head
from experiments.study import Config
from fcojax import algorithms
from fcojax.extend import pooled_gradient
from fcojax.transforms import euclidean


class Method(NamedTuple):
    """A method of the study: its name, and ``loss -> Algorithm``."""

    text: str
    build: Callable[[Any], Any]


METHODS = {
    "fed_dual_avg": Method(
        "FedDualAvg", lambda loss: algorithms.fed_dual_avg(loss, euclidean(PENALTY))
    ),
    "fed_da": Method(
        "FedDA", lambda loss: algorithms.fed_da(loss, PENALTY, metric="adam", estimate="momentum")
    ),
    "composite_fl": Method("Composite FL", lambda loss: algorithms.composite_fl(loss, PENALTY)),
    "fed_avg": Method("FedAvg, thresholded", algorithms.fed_avg),
}


def study(config: Config) -> Iterator[Row]:
    """Yield the size of the problem and every model's nonzeros and accuracy."""
    problem, validation = head(config)
    start = problem.init(jax.random.key(0))
    assert PENALTY.scale_max is not None
    first = float(PENALTY.scale_max(pooled_gradient(problem.loss, start, problem.train)))
    yield {"part": "problem", "first strength": first, "clients": config.num_clients}
    for name in config.methods:
        algorithm = METHODS[name].build(problem.loss)
        penalised = name != "fed_avg"
        strengths = {"penalty_scale": [first * share for share in config.strengths]}
        grid = fcojax.grid.product(
            algorithm.hparams_type,
            client_lr=list(config.client_lr[name]),
            **(strengths if penalised else {}),
        )
        models, _ = fcojax.sweep(
            algorithm,
            grid,
            start,
            problem.train,
            jnp.stack([jax.random.key(seed) for seed in config.seeds]),
            fcojax.local_steps(config.num_steps, config.batch_size),
            num_rounds=config.num_rounds,
        )
        kept = (None,) if penalised else config.kept
        for count in kept:
            yield from _judged(config, name, grid, models, validation, count)


def _judged(config: Config, name: str, grid, models, validation, count) -> Iterator[Row]:
    """Yield the models of all points and seeds; ``count`` keeps so many largest kernel entries."""
    for point, rate in enumerate(np.asarray(grid.client_lr)):
        for place, seed in enumerate(config.seeds):
            kernel = np.asarray(models["kernel"][point, place])
            if count is not None:
                kernel = largest(kernel, count * kernel.shape[1])
            scores = validation["x"] @ kernel + np.asarray(models["bias"][point, place])
            strength = np.asarray(getattr(grid, "penalty_scale", np.zeros(point + 1)))[point]
            right = np.argmax(scores, axis=1) == validation["y"]
            yield {
                "part": "model",
                "method": name,
                "client_lr": float(rate),
                "seed": seed,
                "penalty_scale": float(strength),
                "nonzeros": float(np.count_nonzero(kernel) / kernel.shape[1]),
                "accuracy": float(np.mean(right)),
                "right": np.packbits(right).tobytes().hex(),  # which rows, eight a byte
            }


def largest(kernel: np.ndarray, number: int) -> np.ndarray:
    """Return an array in which all but the entries of largest magnitude are zero.

    Example:
      >>> largest(np.array([[3.0, -1.0], [0.5, -2.0]]), 2).tolist()
      [[3.0, 0.0], [0.0, -2.0]]
    """
    order = np.argsort(-np.abs(kernel), axis=None, kind="stable")
    found = np.zeros(kernel.size, kernel.dtype)
    found[order[:number]] = kernel.reshape(-1)[order[:number]]
    return found.reshape(kernel.shape)


def accuracies(
    config: Config, rows: list[Row], method: str, most: float, least: float = 0
) -> np.ndarray:
    """Return by seed the best accuracy of models with ``least`` to ``most`` nonzeros per class."""
    best = _best(config, rows, method, most, least)
    return np.array([0.0 if row is None else row["accuracy"] for row in best])


def rights(config: Config, rows: list[Row], method: str, most: float) -> np.ndarray | None:
    """Return which rows those models have right, axes [seeds, rows]; ``None`` if unknown."""
    best = _best(config, rows, method, most)
    found = [row["right"] for row in best if row is not None and "right" in row]
    if len(found) < len(best):
        return None
    return np.array([np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8)) for text in found])


def _best(
    config: Config, rows: list[Row], method: str, most: float, least: float = 0
) -> list[Row | None]:
    models = [
        row for row in select(rows, part="model", method=method) if least <= row["nonzeros"] <= most
    ]
    return [
        max(select(models, seed=seed), key=lambda row: row["accuracy"], default=None)
        for seed in config.seeds
    ]


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return each method's accuracy at each number of nonzeros, averaged over the seeds."""
    [facts] = select(rows, part="problem")
    table = [
        {"nonzeros per class, at most": most}
        | {
            METHODS[name].text: float(accuracies(config, rows, name, most).mean())
            for name in config.methods
        }
        for most in config.kept
    ]
    return {"problem": facts, "best": table}
