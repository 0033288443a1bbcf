"""Ratings completed by a matrix of low nuclear norm, with groups of users as clients."""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.plots import Panel
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, best_scores
from experiments.study import Config, Sweep, from_config
from fcojax import algorithms, datasets
from fcojax.algorithms.base import Factory, takes
from fcojax.problems import ClientData, Problem, matrix_completion, synthetic_matrix_completion
from fcojax.problems.matrix_completion import entry_loss
from fcojax.transforms import Penalty, grassmann, nuclear, scaled
from fcojax.types import Array, Count, NonNegative

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
    numbers: dict[str, dict] = {"objective": {}, "rank": {}}
    if not config.data_dir:  # ratings have no true rank
        numbers["rmse"] = {}
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


class Subspaces(NamedTuple):
    """Matrices whose columns lie in a subspace; the rows of ratings, where a client has users.

    Attributes:
      start: the first basis.
      complete: ``basis -> matrix``, with the coefficients of each column that fit its entries best.
        By the envelope theorem the gradient in the basis may treat them as constants.
      curvature: the largest of any client, the unit of ``1 / client_lr``.
    """

    start: Array
    complete: Callable[[Array], Array]
    curvature: float


def subspaces(config: Config) -> Any:
    """Return the subspaces of dimension ``true_rank``, in the place of a manifold."""
    train, _, shape = entries(config)
    rows = {name: np.asarray(values) for name, values in train.examples.items()}
    seen, values = np.zeros((2, *shape), np.float32)
    seen[rows["row"], rows["column"]], values[rows["row"], rows["column"]] = 1, rows["value"]
    if config.data_dir:
        seen, values = seen.T, values.T
    owned = rows["row" if config.data_dir else "column"]
    parts = np.split(owned, np.asarray(train.offsets)[1:-1])
    curvature = max(np.linalg.norm(values[:, np.unique(own)], 2) for own in parts) ** 2

    def complete(basis):
        ridge = 1e-4 * jnp.eye(config.true_rank, dtype=basis.dtype)[None]
        gram = jnp.einsum("dk,dt,dl->tkl", basis, seen, basis) + ridge
        right = jnp.einsum("dk,dt->tk", basis, values)[:, :, None]
        matrix = basis @ jax.lax.stop_gradient(jnp.linalg.solve(gram, right))[:, :, 0].T
        return matrix.T if config.data_dir else matrix

    like = jnp.zeros((len(values), config.true_rank), values.dtype)
    return Subspaces(grassmann().random_point(like, jax.random.key(0)), complete, curvature)


def on_subspaces(name: str) -> Factory:
    """Return a method on a manifold whose point is a basis, and whose model is the matrix."""
    factory = getattr(algorithms, name)

    @takes(factory.Hparams, "manifold")
    def build(loss, given):
        def relative(basis, rows):
            return loss(given.complete(basis), rows) / given.curvature

        inner = factory(relative, grassmann())
        return inner._replace(
            init=lambda hparams, params: inner.init(hparams, given.start),
            model=lambda hparams, server: given.complete(inner.model(hparams, server)),
        )

    return build


EXPERIMENT = Sweep(
    title="Matrix completion by the nuclear norm",
    problem=problem,
    penalty=penalty,
    manifold=subspaces,
    algorithms={n: on_subspaces(n) for n in ("fed_manifold", "r_fed_avg", "r_fed_prox")},
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
