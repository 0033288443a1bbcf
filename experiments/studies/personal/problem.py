"""The populations of the study: each client's training, validation and test rows, and the loss."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.study import Config
from fcojax.datasets.reading import optional
from fcojax.problems import feature_skew, partition, softmax
from fcojax.problems.least_squares import half_squared_error
from fcojax.transforms import Penalty, l1, named, on_subtree

Client = dict[str, np.ndarray]


class Task(NamedTuple):
    """A population, with one entry for each client in all lists.

    Attributes:
      train: training rows.
      validation: rows by which the points of a method are compared.
      test: test rows.
      loss: one loss per row.
      start: the start point: a vector, or a dictionary of a kernel and a bias.
      curvature: the second derivative of the loss in the scores, at most.
      truth: the true weights of each client, or ``None``.
    """

    train: list[Client]
    validation: list[Client]
    test: list[Client]
    loss: Any
    start: Any
    curvature: float
    truth: np.ndarray | None = None

    @property
    def penalty(self) -> Penalty:
        """The l1 norm of the weights; a bias is free."""
        return on_subtree(l1(), named("kernel")) if isinstance(self.start, dict) else l1()

    @property
    def data(self) -> fcojax.ClientData:
        return fcojax.from_clients(self.train)

    @property
    def smoothness(self) -> float:
        """The largest smoothness constant of a client's mean loss."""
        wide = int(isinstance(self.start, dict))  # a column of ones for the bias
        xs = [np.pad(rows["x"], ((0, 0), (0, wide)), constant_values=1.0) for rows in self.train]
        return self.curvature * max(float(np.linalg.norm(x, 2)) ** 2 / len(x) for x in xs)


def lasso(config: Config, seed: int) -> Task:
    """Return regressions on features of different scales, with partly shared supports."""
    own, rng = config.lasso, np.random.default_rng(seed)
    kinds = (own.num_rows, own.num_held_out, own.num_held_out)
    num_clients, dim = own.num_clients, own.dim
    common = np.zeros(dim)
    common[: own.num_shared] = rng.choice([-1.0, 1.0], own.num_shared)
    truth = np.where(common, common + own.spread * rng.standard_normal((num_clients, dim)), 0)
    for weights in truth:
        chosen = rng.choice(np.arange(own.num_shared, dim), own.num_own, replace=False)
        weights[chosen] = rng.choice([-1.0, 1.0], own.num_own)
    x = rng.standard_normal((num_clients * sum(kinds), dim))
    owner = partition.by_column(np.repeat(np.arange(num_clients), sum(kinds)))
    x = feature_skew(x, owner, scale=own.skew, seed=seed).reshape(num_clients, -1, dim)
    y = np.einsum("mnj,mj->mn", x, truth) + own.noise * rng.standard_normal(x.shape[:2])
    ends = np.cumsum(kinds)[:-1]
    train, validation, test = (
        [{"x": a, "y": b} for a, b in zip(xs, ys, strict=True)]
        for xs, ys in zip(np.split(x, ends, axis=1), np.split(y, ends, axis=1), strict=True)
    )
    return Task(train, validation, test, half_squared_error, jnp.zeros(dim), 1.0, truth)


def digits(config: Config, seed: int) -> Task:
    """Return scikit-learn's digits at clients with Dirichlet shares of the classes."""
    found, own = optional("sklearn.datasets", "data").load_digits(), config.digits
    rows = {"x": found.data / 16, "y": found.target.astype(np.int32)}
    given = own.num_clients, own.concentration
    shares = partition.dirichlet(rows["y"], *given, min_size=30, seed=seed)
    rng, ends = np.random.default_rng(seed), np.cumsum(shares.sizes)[:-1]
    parts: tuple[list, list, list] = ([], [], [])
    for mine in np.split(shares.order, ends):
        mine = mine[rng.permutation(len(mine))]
        cuts = np.round(np.cumsum((0.6, 0.2)) * len(mine)).astype(int)
        for part, chosen in zip(parts, np.split(mine, cuts), strict=True):
            part.append({name: values[chosen] for name, values in rows.items()})
    problem = softmax(fcojax.from_clients(parts[0]), num_classes=10)
    return Task(*parts, problem.loss, problem.init(jax.random.key(0)), 0.5)


TASKS: dict[str, Callable[[Config, int], Task]] = {"lasso": lasso, "digits": digits}
