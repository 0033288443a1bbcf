r"""Linear models of other targets: counts, outliers, quantiles, margins.

All have the parameters ``kernel`` and ``bias``, read the fields ``x`` and ``y``, and start at zero.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.memo import memoised
from fcojax.problems.clients import ClientData
from fcojax.problems.fields import check_features
from fcojax.problems.labels import check_splits
from fcojax.problems.measures import at_cuts, density
from fcojax.problems.problem import Loss, Problem
from fcojax.problems.second_moments import second_moments
from fcojax.problems.sparse import SparseRows
from fcojax.types import Array


def predictor(params, rows) -> Array:
    """``x^T kernel + bias`` for each row."""
    return rows["x"] @ params["kernel"] + params["bias"]


def linear_model(loss: Loss, train: ClientData, validation: ClientData | None = None) -> Problem:
    """A problem of a loss of ``kernel`` and ``bias``; its measure is the density of the kernel."""
    check_features(train, validation)
    x = train.examples["x"]

    def init(key):
        del key
        return {"kernel": jnp.zeros(x.shape[1], x.dtype), "bias": jnp.zeros((), x.dtype)}

    def measures(params):
        return at_cuts(lambda cut: density(params["kernel"], cut), (1e-4, 1e-2))

    return Problem(loss, train, validation, init, measures)


def linear(train: ClientData, validation: ClientData | None = None) -> Problem:
    r"""Least squares with a bias, :math:`f = (x^T w + b - y)^2 / 2`.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"x": np.ones((2, 3)), "y": np.array([1.0, 4.0])}
      >>> problem = fcojax.problems.linear(fcojax.from_rows(rows, [1, 1]))
      >>> zero = {"kernel": jnp.zeros(3), "bias": jnp.array(0.0)}
      >>> problem.loss(zero, problem.train.examples).tolist()
      [0.5, 8.0]
    """
    problem = linear_model(half_square, train, validation)
    if isinstance(train.examples["x"], SparseRows):
        return problem
    return problem._replace(summary=second_moments(bias=True))


def half_square(params, rows) -> Array:
    """``(x^T kernel + bias - y)^2 / 2`` for each row.

    Example:
      >>> params = {"kernel": jnp.array([1.0]), "bias": jnp.array(0.0)}
      >>> half_square(params, {"x": jnp.array([[3.0]]), "y": jnp.array([1.0])}).tolist()
      [2.0]
    """
    return 0.5 * (predictor(params, rows) - rows["y"]) ** 2


def poisson(train: ClientData, validation: ClientData | None = None) -> Problem:
    r"""Poisson regression of counts y with a log link.

    .. math:: f(w, b; x, y) = \exp(x^T w + b) - y (x^T w + b)

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"x": np.ones((2, 3)), "y": np.array([0, 4])}
      >>> problem = fcojax.problems.poisson(fcojax.from_rows(rows, [1, 1]))
      >>> zero = {"kernel": jnp.zeros(3), "bias": jnp.array(0.0)}
      >>> problem.loss(zero, problem.train.examples).tolist()  # exp(0) - 0 y
      [1.0, 1.0]
    """
    check_features(train, validation)
    for data in (train, validation):
        if data is not None and float(np.min(np.asarray(data.examples["y"]))) < 0:
            raise ValueError("poisson was given a negative y; counts are at least 0.")
    return linear_model(poisson_loss, train, validation)


def poisson_loss(params, rows) -> Array:
    """``exp(z) - y z`` for each row, with z = x^T kernel + bias: up to ``log y!`` minus log p(y).

    Example:
      >>> params = {"kernel": jnp.array([0.0]), "bias": jnp.array(0.0)}
      >>> poisson_loss(params, {"x": jnp.array([[3.0]]), "y": jnp.array([2])}).tolist()
      [1.0]
    """
    z = predictor(params, rows)
    return jnp.exp(z) - rows["y"].astype(z.dtype) * z


def huber_regression(
    train: ClientData, validation: ClientData | None = None, *, knee: float = 1.345
) -> Problem:
    r"""Regression that outliers do not rule: quadratic up to a residual of ``knee``, then linear.

    .. math:: f = r^2 / 2 \text{ for } |r| \le \delta, \text{ else } \delta (|r| - \delta / 2),
              \qquad r = x^T w + b - y

    With a knee of 1.345 and noise of standard deviation 1 it has 95 percent of the efficiency of
    least squares; scale y so that the noise has about that size.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"x": np.ones((2, 3)), "y": np.array([1.0, 10.0])}
      >>> problem = fcojax.problems.huber_regression(fcojax.from_rows(rows, [1, 1]), knee=2.0)
      >>> zero = {"kernel": jnp.zeros(3), "bias": jnp.array(0.0)}
      >>> problem.loss(zero, problem.train.examples).tolist()  # 1 / 2, and 2 (10 - 1)
      [0.5, 18.0]

    References:
      Huber, Robust estimation of a location parameter, 1964.
    """
    return linear_model(huber_loss(knee), train, validation)


@memoised
def huber_loss(knee: float) -> Loss:
    """See ``huber_regression``.

    Example:
      >>> params = {"kernel": jnp.array([1.0]), "bias": jnp.array(0.0)}
      >>> huber_loss(1.0)(params, {"x": jnp.array([[3.0]]), "y": jnp.array([0.0])}).tolist()
      [2.5]
    """
    _refuse_not_positive("knee", knee)

    def loss(params, rows):
        residual = predictor(params, rows) - rows["y"]
        inner = jnp.clip(residual, -knee, knee)
        return inner * (residual - 0.5 * inner)

    return loss


def quantile_regression(
    train: ClientData,
    validation: ClientData | None = None,
    *,
    level: float = 0.5,
    width: float = 0.1,
) -> Problem:
    r"""Regression of a quantile, with the kink of the check loss smoothed over ``width``.

    .. math:: f = \begin{cases} r^2 / 2 h & -(1 - \tau) h \le r \le \tau h \\
                  \tau r - \tau^2 h / 2 & r > \tau h \\
                  (\tau - 1) r - (1 - \tau)^2 h / 2 & \text{else} \end{cases},
              \qquad r = y - x^T w - b

    the Moreau envelope with parameter h of the check loss :math:`\max(\tau r, (\tau - 1) r)`, which
    is above it by at most :math:`h \max(\tau, 1 - \tau)^2 / 2`.

    Args:
      train: the clients.
      validation: clients that only judge.
      level: tau, strictly between 0 and 1; 1/2 for the median, where f is half the absolute error.
      width: h, positive, in the unit of y.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"x": np.ones((2, 3)), "y": np.array([8.0, -8.0])}
      >>> problem = fcojax.problems.quantile_regression(
      ...     fcojax.from_rows(rows, [1, 1]), level=0.75, width=1e-6)
      >>> zero = {"kernel": jnp.zeros(3), "bias": jnp.array(0.0)}
      >>> problem.loss(zero, problem.train.examples).round().tolist()  # tau r, and (tau - 1) r
      [6.0, 2.0]
    """
    return linear_model(quantile_loss(level, width), train, validation)


@memoised
def quantile_loss(level: float, width: float) -> Loss:
    """See ``quantile_regression``.

    Example:
      >>> params = {"kernel": jnp.array([1.0]), "bias": jnp.array(0.0)}
      >>> rows = {"x": jnp.array([[1.0]]), "y": jnp.array([3.0])}
      >>> quantile_loss(0.5, 1.0)(params, rows).tolist()
      [0.875]
    """
    _refuse_not_positive("width", width)
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; pass a number strictly between 0 and 1.")

    def loss(params, rows):
        residual = rows["y"] - predictor(params, rows)
        slope = jnp.clip(residual / width, level - 1, level)
        return slope * residual - 0.5 * width * slope**2

    return loss


def squared_hinge(train: ClientData, validation: ClientData | None = None) -> Problem:
    r"""A linear support vector machine with a smooth loss, for labels y in {0, 1}.

    .. math:: f(w, b; x, y) = \max(1 - s (x^T w + b), 0)^2, \qquad s = 2 y - 1

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"x": np.array([[2.0], [2.0]]), "y": np.array([1, 0])}
      >>> problem = fcojax.problems.squared_hinge(fcojax.from_rows(rows, [1, 1]))
      >>> params = {"kernel": jnp.array([1.0]), "bias": jnp.array(0.0)}
      >>> problem.loss(params, problem.train.examples).tolist()  # margins of 2 and -2
      [0.0, 9.0]
    """
    check_splits(train, validation, 2)
    return linear_model(squared_hinge_loss, train, validation)


def squared_hinge_loss(params, rows) -> Array:
    """``max(1 - s (x^T kernel + bias), 0)^2`` for each row, with s = 2 y - 1.

    Example:
      >>> params = {"kernel": jnp.array([1.0]), "bias": jnp.array(0.0)}
      >>> squared_hinge_loss(params, {"x": jnp.array([[-1.0]]), "y": jnp.array([1])}).tolist()
      [4.0]
    """
    z = predictor(params, rows)
    return jax.nn.relu(1 - (2 * rows["y"].astype(z.dtype) - 1) * z) ** 2


def _refuse_not_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} is {value}; pass a positive number.")
