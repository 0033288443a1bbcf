"""Rows and tables: end points by method, rule, attack and weight of the attackers."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import FrozenConfigDict

import fcojax
from experiments.report.rows import Row, Summary, select
from experiments.study import Config
from fcojax import algorithms, attacks, robust
from fcojax.problems import lasso
from fcojax.transforms import euclidean, l1, named, on_subtree

PENALTY = on_subtree(l1(), named("kernel"))
FARTHEST = 1e3  # the distance that is shown for a run that diverged


class Method(NamedTuple):
    """A method of the study.

    Attributes:
      text: its name.
      build: ``(loss) -> Algorithm``.
    """

    text: str
    build: Callable[[Any], Any]


METHODS = {
    "fed_dual_avg": Method(
        "FedDualAvg", lambda loss: algorithms.fed_dual_avg(loss, euclidean(PENALTY))
    ),
    "composite_fl": Method("Composite FL", lambda loss: algorithms.composite_fl(loss, PENALTY)),
}
# (share that is trimmed) -> aggregator.
RULES: dict[str, Callable[[float], fcojax.Aggregator]] = {
    "mean": lambda trimmed: fcojax.Aggregator(),
    "median": lambda trimmed: robust.averaged(robust.median()),
    "trimmed_mean": lambda trimmed: robust.averaged(robust.trimmed_mean(trimmed)),
    "geometric_median": lambda trimmed: robust.averaged(robust.geometric_median()),
    "mean_around_median": lambda trimmed: robust.averaged(robust.mean_around_median(trimmed)),
    "krum": lambda trimmed: robust.averaged(robust.krum(trimmed)),
    "multi_krum": lambda trimmed: robust.averaged(robust.multi_krum(trimmed)),
    "centred_clipping": lambda trimmed: robust.averaged(robust.centred_clipping(1.0)),
}
# The attack, and whether it sees all uploads of the round.
ATTACKS = {
    "thousandfold": (attacks.scaled(-1000.0), False),
    "inner_product": (attacks.inner_product(2.0), True),
    "little_is_enough": (attacks.little_is_enough(1.5), True),
}


def study(config: Config) -> Iterator[Row]:
    """Yield the distance of each end point, and the F1 of its support."""
    config = FrozenConfigDict(config)  # sorted pairs, which can be hashed
    for method in config.methods:
        for rule in config.rules:
            for attack in config.attacks:
                for seed in config.seeds:
                    yield from _ends(config, method, rule, attack, seed)


def _ends(config: Config, method: str, rule: str, attack: str, seed: int) -> Iterator[Row]:
    honest = _end(config, method, "mean", config.attacks[0], seed, 0.0)
    true = np.arange(config.own.dim) < config.own.num_true
    for share in config.shares:
        end = _end(config, method, rule, attack, seed, share)
        distance = np.linalg.norm(end - honest) / np.linalg.norm(honest)
        found = end != 0
        yield {
            "part": METHODS[method].text,
            "method": method,
            "rule": rule,
            "attack": attack,
            "seed": seed,
            "share": share,
            "distance": float(np.nan_to_num(min(distance, FARTHEST), nan=FARTHEST)),
            "f1": float(2 * (found & true).sum() / max(found.sum() + true.sum(), 1)),
        }


@functools.cache
def _end(
    config: Config, method: str, rule: str, attack: str, seed: int, share: float
) -> np.ndarray:
    """Return the models at the end; attackers with weight zero have no effect."""
    problem, bad = _problem(config, seed), tuple(range(config.num_bad))
    algorithm, plan = _program(config, problem.loss, method, rule, attack)
    good = config.own.num_clients - len(bad)
    weights = np.r_[np.full(len(bad), share / len(bad)), np.full(good, (1 - share) / good)]
    data = dataclasses.replace(problem.train, weights=jnp.asarray(weights, jnp.float32))
    hparams = algorithm.hparams_type(client_lr=config.client_lr, penalty_scale=config.penalty_scale)
    with warnings.catch_warnings():  # the figure shows that a run diverged
        warnings.simplefilter("ignore")
        model, _ = fcojax.run(
            algorithm,
            hparams,
            problem.init(jax.random.key(0)),
            data,
            jax.random.key(seed),
            plan,
            num_rounds=config.num_rounds,
            eval_every=config.num_rounds,
        )
    return np.asarray(model["kernel"], float)


@functools.cache
def _problem(config: Config, seed: int) -> Any:
    return lasso(seed=seed, **config.own.to_dict())


@functools.cache
def _program(config: Config, loss: Any, method: str, rule: str, attack: str) -> tuple[Any, Any]:
    sent, sees_all = ATTACKS[attack]
    algorithm = attacks.attacked(METHODS[method].build(loss), range(config.num_bad), sent)
    work = fcojax.local_steps(config.num_steps)
    plan = fcojax.Plan(work, aggregator=RULES[rule](config.trimmed))
    return algorithm, attacks.seeing_all(sent, plan) if sees_all else plan


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the mean distance over the seeds, with a column for each weight of the attackers."""
    table = []
    for method in config.methods:
        for attack in config.attacks:
            for rule in config.rules:
                own = select(rows, method=method, rule=rule, attack=attack)
                entry: Row = {"method": METHODS[method].text, "attack": attack, "rule": rule}
                for share in config.shares:
                    ends = [row["distance"] for row in select(own, share=share)]
                    entry[f"{100 * share:g} %"] = float(np.mean(ends))
                table.append(entry)
    return {"best": table}
