"""Ratings completed by a matrix of low nuclear norm, with groups of users as clients."""

import pathlib

import numpy as np

from experiments.report.plots import Panel
from experiments.studies.matrix_completion import claims
from experiments.study import Config, Sweep, from_config
from fcojax import datasets
from fcojax.problems import ClientData, Problem, matrix_completion, synthetic_matrix_completion
from fcojax.problems.matrix_completion import entry_loss
from fcojax.transforms import Penalty, nuclear, scaled
from fcojax.types import Count, NonNegative


def problem(config: Config) -> Problem:
    """Return the problem of squared errors, summed over a client's entries."""
    train, validation, shape = entries(config)
    base = matrix_completion(train, validation, shape=shape, cuts=tuple(config.cuts))
    size = _mean_size(train)
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


def entries(config: Config) -> tuple[ClientData, ClientData | None, tuple[int, int]]:
    """Return the observed entries of each client, those held out, and the matrix's shape."""
    if not config.data_dir:
        make, seed = synthetic_matrix_completion, config.data_seed
        drawn = from_config(make, config, num_validation=20, seed=seed)
        return drawn.train, drawn.validation, tuple(config.shape)
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
    return train, validation, (num_users, len(ratings.items))


def _mean_size(data: ClientData) -> float:
    return float(np.mean(np.asarray(data.sizes)))


EXPERIMENT = Sweep(
    title="Matrix completion by the nuclear norm",
    problem=problem,
    penalty=penalty,
    panels=(
        Panel("objective", r"objective $F + \psi$", log=True),
        Panel("loss", "loss F on the observed entries", log=True),
        Panel("rmse", "root mean squared error, held out"),
        Panel("rank", "rank (singular values above 0.01)", whole=True),
    ),
    keys={NonNegative: "cuts", Count: "shape[2] num_users"},
    claims=claims.claims,
    solve_optimum=False,  # single precision does not reach the solver's tolerance on these sums
)
