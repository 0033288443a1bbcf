"""Entries of a matrix, from a file or synthetic, and the nuclear norm with a relative scale."""

import pathlib
from typing import NamedTuple

import numpy as np

from experiments.study import Config, from_config
from fcojax import datasets
from fcojax.problems import ClientData, Problem, matrix_completion, synthetic_matrix_completion
from fcojax.problems.matrix_completion import entry_loss
from fcojax.transforms import Penalty, nuclear, scaled


class Entries(NamedTuple):
    """The observed and the held-out entries of a matrix, and its shape."""

    train: ClientData
    validation: ClientData | None
    shape: tuple[int, int]


def problem(config: Config) -> Problem:
    """Return the problem of squared errors, summed over a client's entries."""
    found = entries(config)
    base = matrix_completion(
        found.train, found.validation, shape=found.shape, cuts=tuple(config.cuts)
    )
    size = _mean_size(found.train)
    return base._replace(loss=lambda matrix, rows: size * entry_loss(matrix, rows))


def penalty(config: Config) -> Penalty:
    """Return the nuclear norm in units of the smallest strength whose solution is zero."""
    train, _, shape = entries(config)
    slope = np.zeros(shape)
    rows = {name: np.asarray(values) for name, values in train.examples.items()}
    sizes = np.asarray(train.sizes)
    shares = np.repeat(_mean_size(train) / (sizes * len(sizes)), sizes)
    np.add.at(slope, (rows["row"], rows["column"]), shares * rows["value"])
    return scaled(nuclear(), float(np.linalg.norm(slope, 2)))


def entries(config: Config) -> Entries:
    """Return the entries of each client, from the file or synthetic."""
    if not config.data_dir:
        make, seed = synthetic_matrix_completion, config.data_seed
        drawn = from_config(make, config, num_validation=20, seed=seed)
        return Entries(drawn.train, drawn.validation, tuple(config.shape))
    names = ("user", "joke", "rating")
    ratings = datasets.ratings(pathlib.Path(config.data_dir) / "ratings.npz", names=names)
    num_users = min(config.num_users, len(ratings.users))
    examples = ratings.pooled.examples
    group = examples["row"] * config.num_clients // num_users
    chance = np.random.default_rng(config.data_seed).random(len(group))
    kept_users = examples["row"] < num_users
    train, validation = (
        datasets.by_client(
            datasets.Pooled({name: values[kept] for name, values in examples.items()}, group[kept])
        )
        for kept in (kept_users & (chance >= 0.1), kept_users & (chance < 0.1))
    )
    return Entries(train, validation, (num_users, len(ratings.items)))


def _mean_size(data: ClientData) -> float:
    return float(np.mean(np.asarray(data.sizes)))
