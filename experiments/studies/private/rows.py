"""Rows and tables: all methods, noise levels and rates on all populations, and the best rates."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, select
from experiments.study import Config
from fcojax import algorithms, privacy
from fcojax.problems import synthetic_logistic
from fcojax.transforms import euclidean, l1, named, on_subtree

PENALTY = on_subtree(l1(), named("kernel"))
MEASURES = ("accuracy", "f1", "density")


class Method(NamedTuple):
    """A method of the study.

    Attributes:
      text: its name.
      factory: the factory of the algorithm.
      geometry: the factory's second argument, after the loss.
    """

    text: str
    factory: Any
    geometry: Any


METHODS = {
    "fed_dual_avg": Method("FedDualAvg", algorithms.fed_dual_avg, euclidean(PENALTY)),
    "composite_fl": Method("Composite FL", algorithms.composite_fl, PENALTY),
    "fed_mid": Method("FedMiD", algorithms.fed_mid, euclidean(PENALTY)),
    "fed_avg_subgradient": Method("FedAvg", algorithms.fed_avg_subgradient, PENALTY),
}


def study(config: Config) -> Iterator[Row]:
    """Yield the end of each run, and the best rate at its noise level."""
    for seed in config.seeds:
        problem = synthetic_logistic(seed=seed, **config.own.to_dict())
        for method in config.methods:
            yield from _ends(config, problem, method, seed)


def _ends(config: Config, problem: Any, method: str, seed: int) -> Iterator[Row]:
    chosen = METHODS[method]
    algorithm, hparams_type = _algorithm(method, problem.loss)
    grid = fcojax.grid.product(
        hparams_type,
        client_lr=list(config.client_lr),
        noise=list(config.noises),
        penalty_scale=[config.penalty_scale],
    )
    models, _ = fcojax.sweep(
        algorithm,
        grid,
        problem.init(jax.random.key(0)),
        problem.train,
        jax.random.key(seed)[None],
        _plan(config.num_steps, config.clip),
        num_rounds=config.num_rounds,
        eval_every=config.num_rounds,
    )
    measured = jax.jit(jax.vmap(problem.measures))(jax.tree.map(lambda leaf: leaf[:, 0], models))
    accuracy = np.asarray(measured["accuracy"])
    kernels, rates = np.asarray(models["kernel"])[:, 0] != 0, np.asarray(grid.client_lr)
    true, noises = np.arange(config.own.dim) < config.own.num_true, np.asarray(grid.noise)
    for noise in config.noises:
        points = np.flatnonzero(noises == np.float32(noise))
        best = points[np.argmax(accuracy[points])]
        for point in points:
            found = kernels[point]
            yield {
                "part": chosen.text,
                "method": method,
                "seed": seed,
                "noise": noise,
                "client_lr": float(f"{rates[point]:.6g}"),
                "best": bool(point == best),
                "accuracy": float(accuracy[point]),
                "density": float(found.mean()),
                "f1": float(2 * (found & true).sum() / max(found.sum() + true.sum(), 1)),
            } | _epsilons(config, noise)


@functools.cache
def _algorithm(method: str, loss: Any) -> tuple[Any, Any]:
    """Return the algorithm with the noise as a hyperparameter, and its type of hyperparameters."""
    chosen = METHODS[method]
    algorithm = chosen.factory(loss, chosen.geometry)
    hparams_type = fcojax.extended(algorithm.hparams_type, "Private", noise=0.0)
    return algorithm._replace(hparams_type=hparams_type), hparams_type


@functools.cache
def _plan(num_steps: int, clip: float) -> fcojax.Plan:
    private = privacy.gaussian(lambda h: clip * num_steps * h.client_lr, lambda h: h.noise)
    return fcojax.Plan(fcojax.local_steps(num_steps), aggregator=private)


def _epsilons(config: Config, noise: float) -> dict[str, float]:
    """Return the epsilon of one run, and the epsilon of the search over all rates."""
    runs = {"epsilon of one run": 1, "epsilon": len(config.client_lr)}
    return {
        name: privacy.total_epsilon(
            [privacy.Releases(fcojax.everyone(), noise, config.num_rounds * count)],
            config.own.num_clients,
            config.delta,
        )
        for name, count in runs.items()
    }


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the mean measures of each method and noise level at the best rates."""
    table = []
    for method in config.methods:
        for noise in config.noises:
            best = select(rows, method=method, noise=noise, best=True)
            entry = {"method": METHODS[method].text, "noise": noise}
            entry |= {name: best[0][name] for name in ("epsilon of one run", "epsilon")}
            means = {name: float(np.mean([row[name] for row in best])) for name in MEASURES}
            rates = sorted({row["client_lr"] for row in best})
            table.append(entry | means | {"rates": ", ".join(f"{rate:g}" for rate in rates)})
    return {"best": table}
