r"""Few rows with the squared errors of many, which make evaluations cheap.

With :math:`\omega_i` the weight of row i in the population, a mean squared error is
:math:`|A v|^2` for the rows :math:`\sqrt{\omega_i} (1, x_i, y_i)` of A and v = (b, w, -1). The
Cholesky factor R of :math:`A^T A` has the same norms and d + 2 rows. A reflection of R gives all of
them the same first entry, so that they are rows (1, x, y) again, with one weight for all.
"""

import jax.numpy as jnp
import numpy as np

from fcojax.arguments import validated
from fcojax.problems import memory
from fcojax.problems.building import from_rows
from fcojax.problems.client_data import ClientData
from fcojax.problems.least_squares import half_squared_error
from fcojax.problems.linear_models import half_square, squared_error
from fcojax.problems.loss_kinds import LinearLoss
from fcojax.problems.losses import Loss
from fcojax.problems.sparse import SparseRows

_SQUARES = (squared_error, half_square, half_squared_error)
# Fewer rows than this multiple of the condensed ones are evaluated as they are. More features than
# this would take longer to factorise than evaluations gain.
_WORTHWHILE, _MOST_FEATURES = 1.5, 4096
_PIECE = 1024  # rows that are converted to float64 at a time


@validated
def condensed(loss: Loss, data: ClientData) -> ClientData:
    """Return d + 2 rows of one client with the same mean loss at every point, up to rounding.

    That is for squared errors of linear models: those of ``least_squares``, ``linear``, ``lasso``
    and ``low_rank``. Other populations are returned unchanged, and so are populations with few
    rows, more than 4,096 features, features of 16 bits, devices of their own or a place on disk.

    Args:
      loss: the loss of the problem.
      data: the clients.

    Example:
      >>> import fcojax, jax
      >>> problem = fcojax.problems.lasso(num_clients=4, num_examples=50, dim=6, num_true=2)
      >>> few = condensed(problem.loss, problem.train)
      >>> start = problem.init(jax.random.key(0))
      >>> few.sizes.tolist(), problem.train.sizes.tolist()
      ([8], [50, 50, 50, 50])
      >>> losses = [fcojax.problems.population_loss(problem.loss, start, rows)
      ...           for rows in (problem.train, few)]
      >>> bool(abs(losses[0] - losses[1]) < 1e-5 * losses[0])
      True
    """
    function = loss.function if isinstance(loss, LinearLoss) else loss
    if function not in _SQUARES or data.mesh is not None or data.held is not None:
        return data
    x, y = data.examples["x"], data.examples["y"]
    dim = int(np.prod(x.shape[1:]))
    # A process may have to read its own clients alone from a file.
    if memory.file_of(x) is not None or isinstance(x, SparseRows) or y.ndim > 1:
        return data
    # Few rows in 16 bits are too coarse: a loss of 0.0013 became 0.
    if not jnp.issubdtype(x.dtype, jnp.floating) or x.dtype.itemsize < 4:
        return data
    if dim > _MOST_FEATURES or len(y) < _WORTHWHILE * (dim + 2):
        return data
    try:
        # A's last column is y, so the rows are singular if a model fits all of them.
        root = np.linalg.cholesky(_products(np.asarray(x).reshape(-1, dim), np.asarray(y), data)).T
    except np.linalg.LinAlgError:
        return data
    # Reflect (r, 0, ..., 0) to (r, ..., r) / sqrt(n): exchange the two along their difference.
    count = dim + 2
    along = np.full(count, -root[0, 0] / count**0.5)
    along[0] += root[0, 0]
    rows = root - np.outer(2 * along / (along @ along), along @ root)
    rows *= count**0.5 / root[0, 0]
    examples = {"x": rows[:, 1:-1].reshape(count, *x.shape[1:]), "y": rows[:, -1]}
    return from_rows({name: field.astype(x.dtype) for name, field in examples.items()}, [count])


def _products(x: np.ndarray, y: np.ndarray, data: ClientData) -> np.ndarray:
    """Return A^T A in float64."""
    weights, sizes = np.asarray(data.weights, float), np.diff(np.asarray(data.offsets))
    roots = np.repeat(np.sqrt(weights / weights.sum() / np.maximum(sizes, 1)), sizes)
    total = np.zeros((x.shape[1] + 2,) * 2)
    for start in range(0, len(roots), _PIECE):
        piece = slice(start, min(start + _PIECE, len(roots)))
        rows = np.column_stack([np.ones(len(roots[piece])), x[piece], y[piece]])
        rows *= roots[piece, None]
        total += rows.T @ rows
    return total
