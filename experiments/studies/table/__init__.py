"""Algorithms over grids of rates, on the user's table."""

import collections
import functools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.report.plots import Panel
from experiments.studies.table.files import Table, read
from experiments.study import Config, Sweep, on_kernel
from fcojax import datasets, problems
from fcojax.problems import Problem, partition, population_loss
from fcojax.transforms import l1
from fcojax.types import Count, CountOrZero, Positive, Probability

_CONSTANT = 1e-12  # a deviation below this share of the largest entry is rounding
_WHOLE = 2.0**53  # beyond it a number does not hold every whole number
_NAMED = 40  # columns that the page names
penalty = on_kernel(l1())


# The problem of each loss, and the kind of its target.
LOSSES: dict[str, tuple[Callable[..., Problem], str]] = {
    "linear": (problems.linear, "number"),
    "logistic": (problems.logistic, "class"),
    "poisson": (problems.poisson, "count"),
    "huber": (problems.huber_regression, "number"),
    "median": (problems.quantile_regression, "number"),
    "squared_hinge": (problems.squared_hinge, "class"),
}


def problem(config: Config) -> Problem:
    """Return the problem of the rows that train, with a measure on those that are held out."""
    return _task(config)[0]


def remarks(config: Config) -> str:
    """Return what was left out of a file, filled in and held out."""
    return _task(config)[1]


def strengths(config: Config) -> tuple[float, ...]:
    """Return the strengths, given as shares of the smallest one that selects nothing."""
    found, psi = problem(config), penalty(config)
    start = jax.tree.map(jnp.zeros_like, found.init(jax.random.key(0)))
    gradient = jax.grad(lambda params: population_loss(found.loss, params, found.train))(start)
    assert psi.scale_max is not None
    largest = float(psi.scale_max(gradient))
    return tuple(share * largest for share in config.strength)


def _task(config: Config) -> tuple[Problem, str]:
    written = os.stat(config.data).st_mtime_ns if os.path.isfile(config.data) else 0
    return _read_once(config.to_json_best_effort(), written)


@functools.lru_cache(maxsize=1)  # the launcher asks for problem, strengths and remarks
def _read_once(text: str, written: int) -> tuple[Problem, str]:
    config: Config = ConfigDict(json.loads(text))
    table = read(config) if config.data else _drawn(config)
    (build, kind), y = LOSSES[config.loss], _target(table.y, config)
    client = _divided(y, config) if table.client is None else table.client
    held = _held_out(client, config)
    if kind == "class" and len(np.unique(y[~held])) < 2:
        raise ValueError(
            f"{config.target} has one class in all rows that train; pass --config.held_out=0, or "
            "another --config.target."
        )
    rows = {"x": _standardised(table.x, table.names, ~held), "y": y}
    parts = []
    for part in filter(np.any, (~held, held)):
        pooled = datasets.Pooled({name: rows[name][part] for name in rows}, client[part])
        parts.append(datasets.by_client(pooled, "examples"))
    sizes = collections.Counter(table.names)
    named = [f"{name} ({size} levels)" if size > 1 else name for name, size in sizes.items()]
    of = ", ".join(named[:_NAMED]) + ", ..." * (len(named) > _NAMED)
    said = [
        *table.remarks,
        f"{held.sum():,} of {held.size:,} rows are held out.",
        f"The coefficients in models/*.npz are, in order: {of}.",
    ]
    return _scored(build(*parts), kind), " ".join(said)


def _scored(found: Problem, kind: str) -> Problem:
    """Add the accuracy on held-out rows, or R2: the share of the target's variance explained."""
    if found.validation is None:
        return found
    x, y = (jnp.asarray(found.validation.examples[name]) for name in ("x", "y"))

    def measures(params):
        z = x @ params["kernel"] + params["bias"]
        if kind == "class":
            return found.measures(params) | {"accuracy": jnp.mean((z > 0) == (y > 0))}
        residual = y - (jnp.exp(z) if kind == "count" else z)
        return found.measures(params) | {"r2": 1 - jnp.mean(residual**2) / jnp.var(y)}

    return found._replace(measures=measures)


def _target(y: np.ndarray, config: Config) -> np.ndarray:
    """Return the target, classes as 0 and 1; raise ``ValueError`` if it cannot be fitted."""
    kind, name = LOSSES[config.loss][1], config.target
    if config.positive_above != np.inf:
        if kind != "class":
            raise ValueError(
                f"positive_above is {config.positive_above:g}, which makes two classes of the "
                f"target, but that of loss {config.loss} is a {kind}; pass a loss of classes, or "
                "no positive_above."
            )
        y = (y > config.positive_above).astype(float)
    values = np.unique(y)
    if len(values) < 2:
        raise ValueError(
            f"{name} is {values[0]:g} in every row; pass another --config.target, or another "
            "--config.positive_above."
        )
    if kind == "class" and (len(values) > 2 or (values % 1).any()):
        raise ValueError(
            f"the target of loss {config.loss} is one of two classes, but {name} has "
            f"{len(values)} values, such as {values[len(values) // 2]:g}; pass "
            "--config.positive_above=NUMBER to make two classes of them, or --config.loss=linear."
        )
    with np.errstate(over="ignore"):
        if not np.isfinite(np.sum(np.square(y))):
            raise ValueError(
                f"{name} has values up to {np.abs(y).max():g}, whose squares are not finite; "
                "scale it."
            )
    return (y == values[1]).astype(np.int32) if kind == "class" else y  # the larger is class 1


def _divided(labels: np.ndarray, config: Config) -> np.ndarray:
    """Divide rows without clients among ``num_clients``, each class in Dirichlet shares."""
    if (kind := LOSSES[config.loss][1]) != "class":
        raise ValueError(
            f"client is empty, which divides rows by their class, but the target of loss "
            f"{config.loss} is a {kind}; name the clients, or pass loss logistic or squared_hinge."
        )
    given = labels, config.num_clients, config.concentration
    shares = partition.dirichlet(*given, seed=config.data_seed)
    client = np.empty(labels.size, int)
    client[shares.order] = np.repeat(np.arange(config.num_clients), shares.sizes)
    return client


def _held_out(client: np.ndarray, config: Config) -> np.ndarray:
    """Return which rows are held out: of each client this share at random, but never all."""
    _, owner, sizes = np.unique(client, return_inverse=True, return_counts=True)
    order = np.random.default_rng(config.data_seed).permutation(owner.size)
    order = order[np.argsort(owner[order], kind="stable")]
    rank = np.arange(owner.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    number = np.minimum(np.rint(config.held_out * sizes), sizes - 1)
    held = np.empty(owner.size, bool)
    held[order] = rank < np.repeat(number, sizes)
    return held


def _standardised(x: np.ndarray, names: Sequence[str], train: np.ndarray) -> np.ndarray:
    """Scale features to mean 0 and variance 1 over the rows that train; missing values are 0."""
    seen = x[train]
    seen[:, np.isnan(seen).all(axis=0)] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = np.nanmean(seen, axis=0), np.nanstd(seen, axis=0)
        low, high = np.nanmin(seen, axis=0), np.nanmax(seen, axis=0)
        size = np.maximum(np.abs(low), np.abs(high))
        # The mean of equal numbers has a rounding error: 1e-17 if all rows are 0.1.
        tiny = spread <= _CONSTANT * size
    for what, wrong in (
        ("values that are not finite, or whose squares are not; scale it", ~np.isfinite(spread)),
        (
            f"numbers up to {{:.17g}}, which differ by less than {_CONSTANT} of that; subtract "
            "the smallest, or pass --config.drop={}",
            tiny & ((low < high) | (size >= _WHOLE)),
        ),
    ):
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ValueError(f"{names[at]} has {what.format(size[at], names[at])}.")
    if tiny.all():
        raise ValueError("every feature has one value in all rows; pass features that vary.")
    return np.where(tiny, 0.0, np.nan_to_num((x - mean) / np.where(tiny, 1, spread)))


def _drawn(config: Config) -> Table:
    """Return synthetic clients of different sizes and means; every fifth feature matters."""
    given = [key for key in ("features", "missing", "categories", "drop") if any(config[key])]
    if given:
        raise ValueError(
            f"{given[0]} applies to a file, and there is none; pass --config.data=FILE."
        )
    rng, sizes, dim = np.random.default_rng(config.data_seed), config.sizes, config.dim
    client = np.repeat([f"site {index + 1}" for index in range(len(sizes))], sizes)
    shift = np.repeat(0.5 * rng.standard_normal((len(sizes), dim)), sizes, axis=0)
    x = rng.standard_normal(shift.shape) + shift
    z = x @ np.where(np.arange(dim) % 5 == 0, rng.choice([-1.0, 1.0], dim), 0.0)
    kind = LOSSES[config.loss][1]
    if kind == "class":
        y = rng.logistic(size=z.size) < z
    elif kind == "count":
        y = rng.poisson(np.exp(np.clip(z / 3, None, 4)))
    else:
        y = z + rng.standard_normal(z.size)
    return Table(x, y.astype(float), client, [f"x{index + 1}" for index in range(dim)])


EXPERIMENT = Sweep(
    title="Algorithms on a table",
    problem=problem,
    penalty=penalty,
    strengths=strengths,
    remarks=remarks,
    panels=(
        Panel("suboptimality", r"objective above its least, $\Phi - \Phi^*$", log=True),
        Panel("density", "share of nonzero coefficients"),
    ),
    printed=("validation_loss", "accuracy", "r2"),
    notes="Features are scaled to mean 0 and variance 1 over the rows that train; a missing number "
    "is the mean, and a missing word a level. The validation loss and the accuracy, or R2, are "
    "those of the rows held out of each client.",
    keys={
        Literal[*LOSSES]: "loss",
        Count: "num_clients sizes dim",
        CountOrZero: "data_seed",
        Positive: "concentration strength",
        Probability: "held_out",
        str: "data features target client missing categories drop",
        Any: "positive_above",  # infinity if there is none
    },
)
