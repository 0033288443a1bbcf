"""Matrix completion for the nuclear norm."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from fcojax.arguments import validated
from fcojax.problems.clients import ClientData, from_rows
from fcojax.problems.measures import at_cuts, rank
from fcojax.problems.problem import Problem, population_loss
from fcojax.types import Array, Count, CountOrZero, NonNegative, PyTree, Seed, Share


def entry_loss(matrix: Array, rows: PyTree) -> Array:
    """Return ``(matrix[row, column] - value)^2 / 2`` for each observed entry."""
    entries = matrix.at[rows["row"], rows["column"]].get(mode="promise_in_bounds")
    return (entries - rows["value"]) ** 2 / 2


@validated
def matrix_completion(
    train: ClientData,
    validation: ClientData | None = None,
    *,
    shape: tuple[int, int],
    cuts: Sequence[float] = (1e-2, 1e-4),
) -> Problem:
    r"""Estimate a matrix from some of its entries, for the penalty ``transforms.nuclear``.

    .. math:: F(W) = \sum_m p_m \tfrac{1}{n_m} \sum_{(i, j) \in \Omega_m} \tfrac12
              (W_{ij} - v_{ij})^2

    An example is one observed entry: fields ``row``, ``column`` (int) and ``value``. Params are the
    matrix, which starts at zero. The measures are the ``rank`` at each cut and, with validation,
    ``rmse``, the root of the mean squared error there.

    Args:
      train: training data.
      validation: validation data, or ``None``.
      shape: rows and columns of W.
      cuts: magnitudes above which a singular value counts; all but the first appear in the names.

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
                    f"{index.max()}; pass whole numbers below {size} for shape {shape}."
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


@validated
def synthetic_matrix_completion(
    *,
    num_clients: Count = 10,
    shape: tuple[int, int] = (100, 200),
    true_rank: Count = 5,
    share_seen: Share = 0.3,
    own_scale: NonNegative = 0.0,
    noise_scale: NonNegative = 0.1,
    num_validation: CountOrZero = 100,
    cuts: Sequence[float] = (1e-2, 1e-4),
    seed: Seed = 0,
) -> Problem:
    r"""Matrix completion with random observed entries; every client has some of the columns.

    .. math:: A_m = (L + s E_m) R_m + \varepsilon

    with normal L, E_m and R_m. The measures are those of ``matrix_completion`` and ``error_fro``,
    the distance to the matrix without the noise.

    Args:
      num_clients: number of clients M, a divisor of the number of columns.
      shape: rows and columns of the matrix.
      true_rank: number of columns of L, fewer than the matrix has rows and columns.
      share_seen: share of its entries that a client trains on.
      own_scale: s, the spread of the clients' column spaces; with s > 0 the rank is larger.
      noise_scale: standard deviation of the noise on an entry.
      num_validation: validation entries per client.
      cuts: magnitudes above which a singular value counts; all but the first appear in the names.
      seed: seed of the data.

    Example:
      >>> import fcojax
      >>> problem = fcojax.problems.synthetic_matrix_completion(
      ...     num_clients=2, shape=(5, 8), true_rank=1, share_seen=0.5, num_validation=3)
      >>> problem.train.sizes.tolist()  # half of 5 x 4 entries each
      [10, 10]
    """
    rng = np.random.default_rng(seed)
    left = draw_factors(rng, num_clients, shape, true_rank, own_scale)
    num_own = shape[0] * shape[1] // num_clients
    num_seen = round(share_seen * num_own)
    if not 0 < num_seen <= num_own - num_validation:
        raise ValueError(
            f"a client has {num_own} entries, too few to train on {num_seen} and validate on "
            f"{num_validation}; pass a smaller share_seen or num_validation."
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
        population(train),
        population(validation) if num_validation else None,
        shape=shape,
        cuts=cuts,
    )

    def measures(matrix):
        error = jnp.linalg.norm(matrix - jnp.asarray(truth, matrix.dtype))
        return problem.measures(matrix) | {"error_fro": error}

    return problem._replace(measures=measures)


def draw_factors(
    rng: np.random.Generator, num_clients: int, shape: tuple[int, int], rank: int, own_scale: float
) -> np.ndarray:
    """Draw the clients' left factors, L + s E_m with a common L and normal entries."""
    if shape[1] % num_clients:
        raise ValueError(
            f"num_clients is {num_clients}, which does not divide {shape[1]} columns evenly; pass "
            "a divisor."
        )
    common = rng.standard_normal((shape[0], rank))
    return common + own_scale * rng.standard_normal((num_clients, shape[0], rank))


def draw_columns(rng: np.random.Generator, left: np.ndarray, count: int) -> np.ndarray:
    """Draw columns of every client from its left factor, of shape [clients, count, rows]."""
    right = rng.standard_normal((len(left), count, left.shape[2]))
    return right @ left.transpose(0, 2, 1)
