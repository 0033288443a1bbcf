"""The clients, the loss, the penalty and the split of a config."""

from typing import Any, NamedTuple

import numpy as np

from experiments.studies.select.files import OF_CLASSES, Table, numbered, read
from experiments.study import Config
from fcojax import datasets, problems, selection
from fcojax.datasets.pooled import Pooled
from fcojax.problems import Problem, SparseRows, partition
from fcojax.transforms import Penalty, elastic_net, l1, named, on_subtree

_LOSSES = {
    "linear": problems.linear,
    "logistic": problems.logistic,
    "poisson": problems.poisson,
    "huber": problems.huber_regression,
    "median": problems.quantile_regression,
    "squared_hinge": problems.squared_hinge,
}
_SPLITS = {
    "site": lambda config: selection.by_client(),
    "sites": lambda config: selection.by_client(config.num_folds),
    "examples": lambda config: selection.by_example(config.num_folds),
    "bic": lambda config: selection.bic(gaussian=config.loss == "linear"),
    "ebic": lambda config: selection.ebic(gaussian=config.loss == "linear"),
    "aic": lambda config: selection.aic(gaussian=config.loss == "linear"),
}


class Scaling(NamedTuple):
    """The scaling of the features: models take ``(x - mean) / size``.

    Attributes:
      mean: the mean of each feature; zero for sparse features.
      size: the standard deviation or root mean square; 1 in place of 0.
      what: which of the two, in words.
    """

    mean: np.ndarray
    size: np.ndarray
    what: str


class Task(NamedTuple):
    """The problem in a file.

    Attributes:
      problem: the clients and the loss.
      names: the names of the features.
      scaling: the scaling of the features.
      filled: the number of missing values of each feature, replaced by its mean.
      unlabelled: the number of rows without a target, which are left out.
    """

    problem: Problem
    names: list[str]
    scaling: Scaling
    filled: np.ndarray
    unlabelled: int


def task(config: Config) -> Task:
    """Return the task, with missing values filled."""
    table = read(config) if config.data_dir else _synthetic(config)
    present = ~np.isnan(table.y)
    if not present.any():
        raise ValueError(f"{config.target} is missing in all rows; pass another --config.target.")
    if np.isfinite(config.positive_above):
        table = table._replace(y=(table.y > config.positive_above).astype(np.int32))
    x = table.x[present]
    sparse = isinstance(x, SparseRows)
    filled = np.zeros(len(table.names), int) if sparse else np.isnan(x).sum(axis=0)
    if empty := [table.names[column] for column in np.flatnonzero(filled == x.shape[0])]:
        raise ValueError(
            f"{empty[0]} has no value in any row with a target; pass --config.drop="
            f"{','.join(empty)} to leave it out."
        )
    x, scaling = _standardised(x)
    y = table.y[present]
    if config.loss in OF_CLASSES:
        y = _whole(y, config)
    site = _assign_sites(y, config) if table.site is None else table.site[present]
    data = datasets.by_client(Pooled({"x": x, "y": y}, site), weights="examples")
    problem = _chosen("loss", config.loss, _LOSSES)(data)
    return Task(problem, table.names, scaling, filled, int((~present).sum()))


def _whole(labels: np.ndarray, config: Config) -> np.ndarray:
    """Return the classes as whole numbers; raise ``ValueError`` for a fraction."""
    whole = labels.astype(np.int32)
    if (fractions := np.flatnonzero(whole != labels)).size:
        raise ValueError(
            f"the target of loss {config.loss} is a class, but {config.target} is "
            f"{labels[fractions[0]]:g} in a row; pass --config.positive_above=NUMBER to make two "
            "classes of it, or --config.loss=linear."
        )
    return whole


def _assign_sites(labels: np.ndarray, config: Config) -> np.ndarray:
    """Return sites for rows without sites: each class is divided in Dirichlet shares."""
    number, concentration = config.num_clients, config.concentration
    if config.loss not in OF_CLASSES:
        raise ValueError(
            f"client is empty, which divides rows by their class, but the target of loss "
            f"{config.loss} is a number; name the sites, or pass loss {' or '.join(OF_CLASSES)}."
        )
    if not 1 < number <= labels.size:
        raise ValueError(
            f"num_clients is {number}; pass a number from 2 to {labels.size}, the number of rows."
        )
    if not 0 < concentration < np.inf:
        raise ValueError(
            f"concentration is {concentration}; pass a finite number above 0, 1e9 for even shares."
        )
    try:
        shares = partition.dirichlet(labels, number, concentration, seed=config.data_seed)
    except ValueError as error:
        raise ValueError(
            f"no division at concentration {concentration} gives each of {number} clients a row; "
            "raise concentration or lower num_clients."
        ) from error
    names = [f"client {index + 1:0{len(str(number))}}" for index in range(number)]
    site = np.empty(labels.size, f"U{len(names[-1])}")
    site[shares.order] = np.repeat(names, shares.sizes)
    return site


def penalty(config: Config) -> Penalty:
    """Return the elastic net on the kernel, l1 if its share is 1; the bias is free."""
    inner = l1() if config.l1_fraction == 1 else elastic_net(config.l1_fraction)
    return on_subtree(inner, named("kernel"))


def split(config: Config) -> Any:
    """Return the folds or the criterion that chooses the strength."""
    return _chosen("by", config.by, _SPLITS)(config)


def _chosen(key: str, name: str, known: dict) -> Any:
    if name not in known:
        raise ValueError(f"{key} is {name!r}; pass one of {', '.join(known)}.")
    return known[name]


def _standardised(x: np.ndarray | SparseRows) -> tuple[np.ndarray | SparseRows, Scaling]:
    """Return features of mean 0 and variance 1, missing values at the mean, and their scaling.

    Sparse features are divided by their root mean squares only, so that zeros stay zero.
    """
    if isinstance(x, SparseRows):
        value = np.asarray(x.value, np.float64)
        sums = np.bincount(np.ravel(x.index), np.ravel(value**2), minlength=x.num_features)
        size = np.sqrt(sums / x.shape[0])
        size = np.where(size > 0, size, 1)
        return SparseRows(x.index, value / size[x.index], x.num_features), Scaling(
            0 * size, size, "root mean square"
        )
    x = x.astype(np.float64)
    mean, spread = np.nanmean(x, axis=0), np.nanstd(x, axis=0)
    size = np.where(spread > 0, spread, 1)
    scaled = (x - mean) / size
    return np.where(np.isnan(scaled), 0.0, scaled), Scaling(mean, size, "deviation")


def _synthetic(config: Config) -> Table:
    """Return synthetic sites of different sizes and means; every fifth feature matters."""
    rng = np.random.default_rng(config.data_seed)
    sizes = np.asarray(config.sizes)
    site = np.repeat([f"site {index + 1}" for index in range(sizes.size)], sizes)
    shift = np.repeat(0.5 * rng.standard_normal((sizes.size, config.dim)), sizes, axis=0)
    x = rng.standard_normal(shift.shape) + shift
    truth = np.where(np.arange(config.dim) % 5 == 0, rng.choice([-1.0, 1.0], config.dim), 0.0)
    z = x @ truth
    if config.loss in OF_CLASSES:
        y = (rng.logistic(size=z.size) < z).astype(float)
    elif config.loss == "poisson":
        y = rng.poisson(np.exp(np.clip(z / 3, None, 4))).astype(float)
    else:
        y = z + rng.standard_normal(z.size)
    return Table(x, y, site, numbered(config.dim))
