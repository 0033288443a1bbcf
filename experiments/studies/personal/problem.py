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
        found = []
        for rows in self.train:
            x = rows["x"]
            if isinstance(self.start, dict):
                x = np.pad(x, ((0, 0), (0, 1)), constant_values=1.0)  # the bias
            found.append(float(np.linalg.norm(x, 2)) ** 2 / len(x))
        return self.curvature * max(found)


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
    owner = np.repeat(np.arange(num_clients), sum(kinds))
    x = feature_skew(x, partition.by_column(owner), scale=own.skew, seed=seed)
    x = x.reshape(num_clients, -1, dim)
    y = np.einsum("mnj,mj->mn", x, truth) + own.noise * rng.standard_normal(x.shape[:2])
    ends = np.cumsum(kinds)[:-1]
    parts = [
        [{"x": a, "y": b} for a, b in zip(xs, ys, strict=True)]
        for xs, ys in zip(np.split(x, ends, axis=1), np.split(y, ends, axis=1), strict=True)
    ]
    train, validation, test = parts
    return Task(train, validation, test, half_squared_error, jnp.zeros(dim), 1.0, truth)


def digits(config: Config, seed: int) -> Task:
    """Return scikit-learn's digits at clients with Dirichlet shares of the classes."""
    found, own = optional("sklearn.datasets", "data").load_digits(), config.digits
    rows = {"x": found.data / 16, "y": found.target.astype(np.int32)}
    shares = partition.dirichlet(
        rows["y"], own.num_clients, own.concentration, min_size=30, seed=seed
    )
    sorted_rows = {name: values[shares.order] for name, values in rows.items()}
    ends = np.cumsum(shares.sizes)[:-1]
    clients = [
        dict(zip(rows, values, strict=True))
        for values in zip(*(np.split(v, ends) for v in sorted_rows.values()), strict=True)
    ]
    train, validation, test = _split(clients, (0.6, 0.2, 0.2), seed)
    problem = softmax(fcojax.from_clients(train), num_classes=10)
    return Task(train, validation, test, problem.loss, problem.init(jax.random.key(0)), 0.5)


def _split(clients: list[Client], shares: tuple[float, ...], seed: int) -> list[list[Client]]:
    """Return the rows of each client in parts of these shares."""
    rng, parts = np.random.default_rng(seed), [[] for _ in shares]
    for rows in clients:
        size = len(next(iter(rows.values())))
        order = rng.permutation(size)
        ends = np.round(np.cumsum(shares)[:-1] * size).astype(int)
        for part, chosen in zip(parts, np.split(order, ends), strict=True):
            part.append({name: values[chosen] for name, values in rows.items()})
    return parts


def accuracies(models: Any, clients: list[Client]) -> np.ndarray:
    """Return the share of each client's rows whose class its model predicts."""
    found = []
    for m, rows in enumerate(clients):
        scores = rows["x"] @ np.asarray(models["kernel"][m]) + np.asarray(models["bias"][m])
        found.append(np.mean(scores.argmax(axis=1) == rows["y"]))
    return np.array(found)


TASKS: dict[str, Callable[[Config, int], Task]] = {"lasso": lasso, "digits": digits}
