"""A matrix from some of its entries, by the nuclear norm."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from fcojax.problems.clients import ClientData, from_rows
from fcojax.problems.measures import at_cuts, rank
from fcojax.problems.problem import Problem, population_loss
from fcojax.types import Array


def entry_loss(matrix, rows) -> Array:
    """``(matrix[row, column] - value)^2 / 2`` for each observed entry."""
    entries = matrix.at[rows["row"], rows["column"]].get(mode="promise_in_bounds")
    return (entries - rows["value"]) ** 2 / 2


def matrix_completion(
    train: ClientData,
    validation: ClientData | None = None,
    *,
    shape: tuple[int, int],
    cuts: Sequence[float] = (1e-2, 1e-4),
) -> Problem:
    r"""A matrix from some of its entries, for the penalty ``transforms.nuclear``.

    .. math:: F(W) = \sum_m p_m \tfrac{1}{n_m} \sum_{(i, j) \in \Omega_m} \tfrac12
              (W_{ij} - v_{ij})^2

    An example is one observed entry: fields ``row``, ``column`` (int) and ``value``. Params are the
    matrix, which starts at zero. The measures are the ``rank`` at each cut and, with validation,
    ``rmse``, the root of the mean squared error there.

    Args:
      train: the clients.
      validation: entries that only judge.
      shape: rows and columns of W.
      cuts: magnitudes above which a singular value counts.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"row": np.array([0, 1]), "column": np.array([2, 0]), "value": np.array([4.0, 2])}
      >>> problem = fcojax.problems.matrix_completion(fcojax.from_rows(rows, [1, 1]), shape=(2, 3))
      >>> problem.loss(jnp.zeros((2, 3)), problem.train.examples).tolist()
      [8.0, 2.0]
    """
    for data in filter(None, (train, validation)):
        for name, size in zip(("row", "column"), shape, strict=True):
            index = np.asarray(data.examples[name])
            whole = np.issubdtype(index.dtype, np.integer)
            if not whole or index.min() < 0 or index.max() >= size:
                raise ValueError(
                    f"field {name} has type {index.dtype} and runs from {index.min()} to "
                    f"{index.max()}; a matrix of shape {shape} needs whole numbers below {size}."
                )

    def init(key):
        del key
        return jnp.zeros(shape, train.examples["value"].dtype)

    def measures(matrix):
        result = at_cuts(lambda cut: rank(matrix, cut), cuts)
        if validation is not None:
            result["rmse"] = jnp.sqrt(2 * population_loss(entry_loss, matrix, validation))
        return result

    return Problem(entry_loss, train, validation, init, measures)


def synthetic_matrix_completion(
    *,
    num_clients: int = 10,
    shape: tuple[int, int] = (100, 200),
    true_rank: int = 5,
    share_seen: float = 0.3,
    own_scale: float = 0.0,
    noise_scale: float = 0.1,
    num_validation: int = 100,
    cuts: Sequence[float] = (1e-2, 1e-4),
    seed: int = 0,
) -> Problem:
    r"""Entries of a matrix of low rank, seen at random places; every client has some columns.

    .. math:: A_m = (L + s E_m) R_m + \varepsilon

    with normal L, E_m and R_m. The measures are those of ``matrix_completion`` and ``error_fro``,
    the distance to the matrix without the noise.

    Args:
      num_clients: M, by which the number of columns is to be divisible.
      shape: rows and columns of the matrix.
      true_rank: columns of L.
      share_seen: share of the entries that a client trains on.
      own_scale: s, how much the clients' column spaces differ; with s > 0 the rank is larger.
      noise_scale: standard deviation of the noise on an entry.
      num_validation: further entries that a client is judged on.
      cuts: magnitudes above which a singular value counts.
      seed: what the data are drawn from.

    Example:
      >>> import fcojax
      >>> problem = fcojax.problems.synthetic_matrix_completion(
      ...     num_clients=2, shape=(5, 8), true_rank=1, share_seen=0.5, num_validation=3)
      >>> problem.train.sizes.tolist()  # half of 5 x 4 entries each
      [10, 10]
    """
    rng = np.random.default_rng(seed)
    _, left = draw_factors(rng, num_clients, shape, true_rank, own_scale)
    num_own = shape[0] * shape[1] // num_clients
    num_seen = round(share_seen * num_own)
    if noise_scale < 0:
        raise ValueError(f"noise_scale is {noise_scale}; pass zero or more.")
    if not 0 < num_seen <= num_own - num_validation:
        raise ValueError(
            f"a client has {num_own} entries, too few to see {num_seen} and be judged on "
            f"{num_validation}; lower share_seen or num_validation."
        )
    columns = draw_columns(rng, left, shape[1] // num_clients)
    truth = columns.reshape(-1, shape[0]).T
    splits: tuple[list, list] = ([], [])
    for m, mine in enumerate(columns):
        order = rng.permutation(mine.size)[: num_seen + num_validation]
        for split, places in zip(splits, np.split(order, [num_seen]), strict=True):
            column, row = np.divmod(np.sort(places), shape[0])
            noise = noise_scale * rng.standard_normal(row.size)
            split.append((row, column + m * len(mine), mine[column, row] + noise))

    def population(split):
        row, column, value = map(np.concatenate, zip(*split, strict=True))
        examples = {"row": row.astype(np.int32), "column": column.astype(np.int32)}
        examples |= {"value": value.astype(np.float32)}
        return from_rows(examples, [len(part[0]) for part in split])

    train, validation = splits
    problem = matrix_completion(
        population(train), population(validation) if num_validation else None,
        shape=shape, cuts=cuts,
    )  # fmt: skip

    def measures(matrix):
        error = jnp.linalg.norm(matrix - jnp.asarray(truth, matrix.dtype))
        return problem.measures(matrix) | {"error_fro": error}

    return problem._replace(measures=measures)


def draw_factors(
    rng, num_clients: int, shape: tuple[int, int], rank: int, own_scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """The common left factor L, and those of the clients, L + s E_m; all entries are normal."""
    if shape[1] % num_clients:
        raise ValueError(
            f"{num_clients} clients cannot share {shape[1]} columns evenly; pass a divisor."
        )
    if not 0 < rank < min(shape):
        raise ValueError(f"true_rank is {rank} in a matrix of shape {shape}; it must fit.")
    if own_scale < 0:
        raise ValueError(f"own_scale is {own_scale}; pass zero or more.")
    common = rng.standard_normal((shape[0], rank))
    return common, common + own_scale * rng.standard_normal((num_clients, shape[0], rank))


def draw_columns(rng, left: np.ndarray, count: int) -> np.ndarray:
    """``count`` columns of every client from its left factor, of shape (clients, count, rows)."""
    right = rng.standard_normal((len(left), count, left.shape[2]))
    return right @ left.transpose(0, 2, 1)
