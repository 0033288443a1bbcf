"""Ratings completed by a matrix of low nuclear norm, with groups of users as clients."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.plots import Panel
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, best_scores
from experiments.study import Config, Sweep, from_config
from fcojax import algorithms, datasets
from fcojax.algorithms import Algorithm, takes
from fcojax.problems import ClientData, Problem, matrix_completion, synthetic_matrix_completion
from fcojax.problems.losses import Loss
from fcojax.problems.matrix_completion import entry_loss
from fcojax.transforms import Penalty, grassmann, nuclear, scaled
from fcojax.types import Count, NonNegative

STATEMENTS = """
Expected by us
objective over fed_mid fed_dual_avg_osp
    | FedMiD and FedDualAvg-OSP end at a larger objective, at best rates
    | times FedDualAvg's | > 1
rank beyond fed_mid | FedMiD ends at a larger rank | rank minus FedDualAvg's | > 0
rmse over fed_manifold
    | with the true rank given, FedManifold has a smaller error than with the nuclear norm
    | root mean squared error over FedDualAvg's, held out | < 0.8
noise its fed_manifold | and is close to the noise
    | root mean squared error over the noise's standard deviation, held out | < 1.5
given its fed_manifold | and ends at the true rank | distance from the true rank, all seeds | <= 0
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return our expectations, as in Figure 4, paired over the seeds."""
    known = summary["algorithms"]
    if "fed_dual_avg" not in known:
        return []
    judge = Criterion("objective", "min", config.criterion_rounds)
    measures = ("objective", "rank") if config.data_dir else ("objective", "rank", "rmse")
    numbers: dict[str, dict] = {measure: {} for measure in measures}
    for name in sorted(known, key=lambda name: name != "fed_dual_avg"):
        for measure, own in numbers.items():
            own[name] = best_scores(rows, name, known[name], judge._replace(measure=measure))
    for name in {"fed_manifold"} & numbers.get("rmse", {}).keys():
        numbers["noise"] = {name: numbers["rmse"][name] / config.noise_scale}
        numbers["given"] = {name: abs(numbers["rank"][name] - config.true_rank)}
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


def subspaces(config: Config) -> Any:
    """Return a first basis, ``basis -> matrix``, and the largest curvature of any client.

    The columns of the matrix, or the rows of ratings, where a client has users, lie in a subspace
    of dimension ``true_rank``. Their coefficients are those that fit their entries best; by the
    envelope theorem the gradient in the basis may treat them as constants.
    """
    train, _, shape = entries(config)
    rows = {name: np.asarray(values) for name, values in train.examples.items()}
    seen, values = np.zeros((2, *shape), np.float32)
    seen[rows["row"], rows["column"]], values[rows["row"], rows["column"]] = 1, rows["value"]
    owned = rows["row" if config.data_dir else "column"]
    if config.data_dir:
        seen, values = seen.T, values.T
    parts = np.split(owned, np.asarray(train.offsets)[1:-1])
    curvature = max(float(np.linalg.norm(values[:, np.unique(own)], 2)) ** 2 for own in parts)

    def complete(basis):
        ridge = 1e-4 * jnp.eye(config.true_rank, dtype=basis.dtype)[None]
        gram = jnp.einsum("dk,dt,dl->tkl", basis, seen, basis) + ridge
        right = jnp.einsum("dk,dt->tk", basis, values)[:, :, None]
        matrix = basis @ jax.lax.stop_gradient(jnp.linalg.solve(gram, right))[:, :, 0].T
        return matrix.T if config.data_dir else matrix

    like = jnp.zeros((len(values), config.true_rank), values.dtype)
    return grassmann().random_point(like, jax.random.key(0)), complete, curvature


@takes(algorithms.fed_manifold.Hparams, "manifold")
def fed_manifold(loss: Loss, given: Any) -> Algorithm:
    """The manifold method on subspaces; its client rate is in units of one over the curvature."""
    start, complete, curvature = given
    own = algorithms.fed_manifold(lambda x, rows: loss(complete(x), rows) / curvature, grassmann())
    return own._replace(
        init=lambda hparams, params: own.init(hparams, start),
        model=lambda hparams, server: complete(own.model(hparams, server)),
    )


EXPERIMENT = Sweep(
    title="Matrix completion by the nuclear norm",
    problem=problem,
    penalty=penalty,
    manifold=subspaces,
    algorithms=[fed_manifold],
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
