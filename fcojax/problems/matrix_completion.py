"""Matrix completion for the nuclear norm."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from fcojax.arguments import validated
from fcojax.problems.client_data import ClientData
from fcojax.problems.measures import at_cuts, rank
from fcojax.problems.problem import Problem, population_loss
from fcojax.types import Array, PyTree


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
        return jnp.zeros(shape, train.examples["value"].dtype)

    def measures(matrix):
        result = at_cuts(lambda cut: rank(matrix, cut), cuts)
        if validation is not None:
            result["rmse"] = jnp.sqrt(2 * population_loss(entry_loss, matrix, validation))
        return result

    return Problem(entry_loss, train, validation, init, measures)
