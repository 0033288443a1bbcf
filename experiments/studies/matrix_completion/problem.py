"""Entries of a matrix, read or drawn, and the nuclear norm scaled to them."""

import pathlib
from typing import NamedTuple

import numpy as np

from fcojax.problems import (
    ClientData,
    loaders,
    matrix_completion,
    synthetic_matrix_completion,
)
from fcojax.problems.matrix_completion import entry_loss
from fcojax.transforms import nuclear, scaled


class Entries(NamedTuple):
    """The observed and the held-out entries of a matrix, and its shape."""

    train: ClientData
    validation: ClientData | None
    shape: tuple[int, int]


def problem(config):
    """Squared errors, summed over a client's entries."""
    seen = entries(config)
    base = matrix_completion(seen.train, seen.validation, shape=seen.shape, cuts=tuple(config.cuts))
    size = _mean_size(seen.train)
    return base._replace(loss=lambda matrix, rows: size * entry_loss(matrix, rows))


def penalty(config):
    """The nuclear norm in units of the smallest strength at which zero is the solution."""
    train, _, shape = entries(config)
    slope = np.zeros(shape)
    rows = {name: np.asarray(values) for name, values in train.examples.items()}
    sizes = np.asarray(train.sizes)
    shares = np.repeat(_mean_size(train) / (sizes * len(sizes)), sizes)
    np.add.at(slope, (rows["row"], rows["column"]), shares * rows["value"])
    return scaled(nuclear(), float(np.linalg.norm(slope, 2)))


def entries(config) -> Entries:
    """The entries of each client, from the file or drawn."""
    if not config.data_dir:
        drawn = synthetic_matrix_completion(
            num_clients=config.num_clients,
            shape=tuple(config.shape),
            true_rank=config.true_rank,
            share_seen=config.share_seen,
            noise_scale=config.noise_scale,
            num_validation=20,
            seed=config.data_seed,
        )
        return Entries(drawn.train, drawn.validation, tuple(config.shape))
    names = ("user", "joke", "rating")
    ratings = loaders.ratings(pathlib.Path(config.data_dir) / "ratings.npz", names=names)
    num_users = min(config.num_users, len(ratings.users))
    examples = ratings.pooled.examples
    group = examples["row"] * config.num_clients // num_users
    chance = np.random.default_rng(config.data_seed).random(len(group))
    mine = examples["row"] < num_users
    train, validation = (
        loaders.by_client(
            loaders.Pooled({name: values[kept] for name, values in examples.items()}, group[kept])
        )
        for kept in (mine & (chance >= 0.1), mine & (chance < 0.1))
    )
    return Entries(train, validation, (num_users, len(ratings.items)))


def _mean_size(data: ClientData) -> float:
    return float(np.mean(np.asarray(data.sizes)))
