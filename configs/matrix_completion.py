r"""Ratings completed by a matrix of low nuclear norm, with groups of users as clients.

    python -m experiments.run --config=configs/matrix_completion.py --workdir=runs/matrix_completion
    python -m experiments.run --config=configs/matrix_completion.py --workdir=runs/jester \
        --config.data_dir=DIR

Federated composite optimisation in the sense of Yuan, Zaheer and Reddi (ICML 2021), who name the
nuclear norm but complete no matrix. A client's loss is half the sum of squared errors over its
entries, and the penalty a share of the least strength at which zero is the solution, so that rates
and strengths mean the same on all data. Half of the clients a round, five full-batch steps. Every
algorithm over a 4 x 4 grid of rates and three seeds by successive halving, shown at the rates with
the least objective over the last 50 rounds. Under a minute on two cores without ``DIR``; about as
long with Jester.

``DIR`` holds ``ratings.npz`` with arrays user, joke and rating (Jester), of which the first
``num_users`` users are read and a tenth of all entries is held out. Without it, a matrix of 40 x
60, of rank 3 with noise, of which every second entry is seen. Singular value decompositions take
nearly all of the time; ``OPENBLAS_NUM_THREADS=1`` makes them ten times faster on a busy machine.
"""

import pathlib
from typing import NamedTuple

import numpy as np

from experiments.report.claims import Claim
from experiments.report.plots import Panel
from experiments.study import Sweep
from experiments.sweep_config import sweep_config
from fcojax.problems import (
    ClientData,
    loaders,
    matrix_completion,
    synthetic_matrix_completion,
)
from fcojax.problems.matrix_completion import entry_loss
from fcojax.transforms import nuclear, scaled

PANELS = (
    Panel("objective", "objective F + psi", log=True),
    Panel("loss", "loss F on the entries seen", log=True),
    Panel("rmse", "root mean squared error, held out"),
    Panel("rank", "rank (singular values above 0.01)"),
)


def get_config():
    """Everything that can be set with --config.KEY=VALUE."""
    return sweep_config(
        algorithms=("fed_dual_avg", "fed_dual_avg_osp", "fed_mid", "fed_mid_osp"),
        client_lr=(0.03, 0.1, 0.3, 1.0),
        server_lr=(0.3, 1.0, 3.0, 10.0),
        penalty_scale=(0.1,),
        num_rounds=200,
        cohort_size=5,
        num_steps=5,
        search="halving",
        criterion="objective",
        criterion_rounds=50,
        num_clients=10,
        shape=(40, 60),
        true_rank=3,
        share_seen=0.5,
        noise_scale=0.1,
        num_users=60,
        cuts=(1e-2, 1e-4),
    )


def quick(config):
    """Shrinks the run to under a minute on a laptop."""
    config.client_lr = (0.3,)
    config.server_lr = (1.0, 3.0)
    config.num_rounds = 60
    config.criterion_rounds = 20
    config.seeds = (0,)
    config.shape = (20, 40)
    config.true_rank = 2
    config.num_users = 40


class Entries(NamedTuple):
    """What was seen of a matrix of some shape, and what was held out."""

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
    """The nuclear norm in units of the least strength at which zero is the solution."""
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


def claims(config, rows, summary):
    """What the paper says of low-rank matrices, asked of completion."""
    del config, rows
    entries = summary["algorithms"]
    if not {"fed_dual_avg", "fed_dual_avg_osp", "fed_mid"} <= entries.keys():
        return []
    last = {label: entry["last"] for label, entry in entries.items()}
    missing = float("nan")
    ours = last["fed_dual_avg"].get("objective", missing)
    return [
        Claim(
            "objective of FedMiD, at its best rates, over that of FedDualAvg",
            last["fed_mid"].get("objective", missing) / ours,
            1.0,
        ),
        Claim(
            "objective of FedDualAvg-OSP, at its best rates, over that of FedDualAvg",
            last["fed_dual_avg_osp"].get("objective", missing) / ours,
            1.0,
        ),
        Claim(
            "rank of FedMiD minus that of FedDualAvg",
            last["fed_mid"].get("rank", missing) - last["fed_dual_avg"].get("rank", missing),
            0.0,
        ),
    ]


def _mean_size(data: ClientData) -> float:
    return float(np.mean(np.asarray(data.sizes)))


EXPERIMENT = Sweep(
    title="Matrix completion by the nuclear norm",
    problem=problem,
    penalty=penalty,
    panels=PANELS,
    claims=claims,
    solve_optimum=False,  # single precision does not reach the solver's tolerance on these sums
)
