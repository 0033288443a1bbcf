r"""Least squares and ridge regression, whose minimiser has a closed form."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from fcojax.arguments import validated
from fcojax.problems.client_data import ClientData
from fcojax.problems.labels import check_features
from fcojax.problems.loss_kinds import LinearLoss
from fcojax.problems.problem import Problem, second_moment
from fcojax.problems.products import with_products
from fcojax.problems.sparse import SparseRows
from fcojax.types import Array, NonNegative, PyTree


@validated
def least_squares(
    train: ClientData, validation: ClientData | None = None, *, ridge: NonNegative = 0.0
) -> Problem:
    r"""Linear regression on fields ``x`` and ``y``, with no bias; the start point is zero.

    .. math:: F_m(w) = \tfrac{1}{n_m} \sum_i \tfrac12 (x_{m,i}^T w - y_{m,i})^2
              + \tfrac{\rho}{2} |w|^2

    The ridge term makes F strongly convex and is part of the loss; ``transforms.l2_squared`` is the
    same term as a penalty whose strength can be swept. If the minimiser is unique, the measures
    are ``error``, the distance to it, and ``suboptimality``. There are none for ``SparseRows``,
    which may have too many features for a Gram matrix.

    Args:
      train: training data.
      validation: validation data, or ``None``.
      ridge: rho.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"x": np.eye(2), "y": np.array([3.0, 4.0])}, [1, 1])
      >>> problem = fcojax.problems.least_squares(data)
      >>> round(float(problem.measures(jnp.zeros(2))["error"]), 4)  # to the minimiser (3, 4)
      5.0
    """
    check_features(train, validation)
    x = train.examples["x"]
    loss = LinearLoss(half_squared_error, ridge)
    dtype = jnp.result_type(x.dtype)
    init = lambda key: jnp.zeros(x.shape[1], dtype)  # noqa: E731
    return Problem(loss, with_products(train), validation, init, _distances(train, ridge))


def _distances(train: ClientData, ridge: float) -> Callable[[Array], dict[str, Array]]:
    """The measures; none if the minimiser is not unique, or for sparse rows."""
    if isinstance(train.examples["x"], SparseRows):
        return lambda w: {}
    hessian, slope = normal_equations(train, ridge)
    if np.linalg.matrix_rank(hessian, hermitian=True) < slope.size:
        return lambda w: {}
    solution = np.linalg.solve(hessian, slope)

    def measures(w):
        difference = w - jnp.asarray(solution, w.dtype)
        curved = jnp.asarray(hessian, w.dtype) @ difference
        return {"error": jnp.linalg.norm(difference), "suboptimality": difference @ curved / 2}

    return measures


def half_squared_error(w: Array, rows: PyTree, ridge: float = 0.0) -> Array:
    """Return ``(x^T w - y)^2 / 2 + ridge |w|^2 / 2`` for each row."""
    losses = (rows["x"] @ w - rows["y"]) ** 2 / 2
    return losses + ridge / 2 * jnp.sum(w**2) if ridge else losses


def normal_equations(data: ClientData, ridge: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    r"""Return H and h of the population's :math:`F(w) = w^T H w / 2 - h^T w + const`, in float64.

    .. math:: H = \sum_m p_m X_m^T X_m / n_m + \rho I, \qquad h = \sum_m p_m X_m^T y_m / n_m

    with the :math:`p_m` scaled to sum to one. The minimiser is ``np.linalg.solve(H, h)``.
    """
    hessian = second_moment(data, "x")
    return hessian + ridge * np.eye(hessian.shape[0]), second_moment(data, "x", "y")[:, 0]
