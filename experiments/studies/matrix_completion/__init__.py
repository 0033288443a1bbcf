"""Ratings completed by a matrix of low nuclear norm, with groups of users as clients."""

import pathlib

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.plots import Panel
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, best_scores
from experiments.study import Config, Sweep, from_config
from fcojax import datasets
from fcojax.problems import ClientData, Problem, matrix_completion, synthetic_matrix_completion
from fcojax.problems.matrix_completion import entry_loss
from fcojax.transforms import Penalty, nuclear, scaled
from fcojax.types import Count, NonNegative

STATEMENTS = """
Expected by us
objective over fed_mid fed_dual_avg_osp
    | FedMiD and FedDualAvg-OSP end at a larger objective, at best rates
    | times FedDualAvg's | > 1
rank beyond fed_mid | FedMiD ends at a larger rank | rank minus FedDualAvg's | > 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return our expectations, as in Figure 4, paired over the seeds."""
    known = summary["algorithms"]
    if "fed_dual_avg" not in known:
        return []
    judge = Criterion("objective", "min", config.criterion_rounds)
    numbers: dict[str, dict] = {"objective": {}, "rank": {}}
    for name in sorted(known, key=lambda name: name != "fed_dual_avg"):
        for measure, own in numbers.items():
            own[name] = best_scores(rows, name, known[name], judge._replace(measure=measure))
    return judged(STATEMENTS, numbers)


def problem(config: Config) -> Problem:
    """Return the problem of squared errors, summed over a client's entries."""
    train, validation, shape = entries(config)
    base = matrix_completion(train, validation, shape=shape, cuts=tuple(config.cuts))
    size = float(np.mean(np.asarray(train.sizes)))
    return base._replace(loss=lambda matrix, rows: size * entry_loss(matrix, rows))


def penalty(config: Config) -> Penalty:
    """Return the nuclear norm in units of the smallest strength whose solution is zero."""
    train, _, shape = entries(config)
    slope = np.zeros(shape)
    rows = {name: np.asarray(values) for name, values in train.examples.items()}
    sizes = np.asarray(train.sizes)
    shares = np.repeat(np.mean(sizes) / (sizes * len(sizes)), sizes)
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
    known, held_out = examples["row"] < num_users, chance < 0.1
    train, validation = (
        datasets.Pooled({name: values[kept] for name, values in examples.items()}, group[kept])
        for kept in (known & ~held_out, known & held_out)
    )
    shape = num_users, len(ratings.items)
    return datasets.by_client(train), datasets.by_client(validation), shape


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
    claims=claims,
    solve_optimum=False,  # single precision does not reach the solver's tolerance on these sums
)
