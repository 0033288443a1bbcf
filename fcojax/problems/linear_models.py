r"""Linear models with other losses: Poisson, Huber, quantile and squared hinge.

All have the parameters ``kernel`` and ``bias``, read the fields ``x`` and ``y``, and start at zero.
"""

import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import factory, validated
from fcojax.problems.client_data import ClientData
from fcojax.problems.labels import check_features, check_splits
from fcojax.problems.loss_kinds import LinearLoss
from fcojax.problems.losses import Loss
from fcojax.problems.measures import Predict, accuracy, at_cuts, density
from fcojax.problems.problem import Problem
from fcojax.problems.products import with_products
from fcojax.types import Array, Params, Positive, Probability, PyTree


@validated
def predictor(params: Mapping, rows: Mapping) -> Array:
    """Return ``x^T kernel + bias`` for each row."""
    return rows["x"] @ params["kernel"] + params["bias"]


def linear_model(
    loss: Loss, train: ClientData, validation: ClientData | None, cuts: Sequence = (1e-4, 1e-2)
) -> Problem:
    """The problem of a loss of ``kernel`` and ``bias``; the measure is the kernel's density."""
    check_features(train, validation)
    x = train.examples["x"]

    def init(key):
        return {"kernel": jnp.zeros(x.shape[1], x.dtype), "bias": jnp.zeros((), x.dtype)}

    def measures(params):
        return at_cuts(lambda cut: density(params["kernel"], cut), cuts)

    return Problem(LinearLoss(loss), with_products(train), validation, init, measures)


def classifier(
    loss: Loss, predict: Predict, train: ClientData, validation: ClientData | None, outputs, cuts
) -> Problem:
    """A linear model of labels with ``outputs`` per row; a measure is its accuracy."""
    check_splits(train, validation, *(outputs or (2,)))
    problem = linear_model(loss, train, validation, cuts)
    dim = train.examples["x"].shape[1]
    correct = accuracy(predict, validation)

    def init(key):
        shape = (dim, math.prod(outputs))
        kernel = jax.nn.initializers.glorot_uniform()(key, shape, jnp.float32)
        return {"kernel": kernel.reshape(dim, *outputs), "bias": jnp.zeros(outputs, jnp.float32)}

    def measures(params):
        return correct(params) | problem.measures(params)

    return problem._replace(init=init, measures=measures)


@validated
def linear(train: ClientData, validation: ClientData | None = None) -> Problem:
    r"""Least squares with a bias, :math:`f = (x^T w + b - y)^2 / 2`.

    Args:
      train: training data, with fields ``x`` and ``y``.
      validation: validation data, or ``None``.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"x": np.ones((2, 3)), "y": np.array([1.0, 4.0])}
      >>> problem = fcojax.problems.linear(fcojax.from_rows(rows, [1, 1]))
      >>> zero = {"kernel": jnp.zeros(3), "bias": jnp.array(0.0)}
      >>> problem.loss(zero, problem.train.examples).tolist()
      [0.5, 8.0]
    """
    return linear_model(half_square, train, validation)


def half_square(params: Params, rows: PyTree) -> Array:
    """Return ``(x^T kernel + bias - y)^2 / 2`` for each row."""
    return 0.5 * (predictor(params, rows) - rows["y"]) ** 2


def squared_error(params: Params, rows: PyTree) -> Array:
    """Return ``(<x, kernel> + bias - y)^2`` for each row."""
    flat = rows["x"].reshape(rows["x"].shape[0], -1)
    return (flat @ params["kernel"].reshape(-1) + params["bias"] - rows["y"]) ** 2


@validated
def poisson(train: ClientData, validation: ClientData | None = None) -> Problem:
    r"""Poisson regression of counts y with a log link.

    .. math:: f(w, b; x, y) = \exp(x^T w + b) - y (x^T w + b)

    Args:
      train: training data, with features ``x`` and counts ``y``.
      validation: validation data, or ``None``.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"x": np.ones((2, 3)), "y": np.array([0, 4])}
      >>> problem = fcojax.problems.poisson(fcojax.from_rows(rows, [1, 1]))
      >>> zero = {"kernel": jnp.zeros(3), "bias": jnp.array(0.0)}
      >>> problem.loss(zero, problem.train.examples).tolist()  # exp(0) - 0 y
      [1.0, 1.0]
    """
    problem = linear_model(poisson_loss, train, validation)
    for data in filter(None, (train, validation)):
        y = np.asarray(data.examples["y"])
        if (y < 0).any() or (y != np.floor(y)).any():
            raise ValueError("field y has negative or fractional values; pass counts.")
    return problem


def poisson_loss(params: Params, rows: PyTree) -> Array:
    """Return ``exp(z) - y z`` for each row, with z = x^T kernel + bias.

    It is the negative log-likelihood of the counts up to a constant.

    Example:
      >>> params = {"kernel": jnp.array([0.0]), "bias": jnp.array(0.0)}
      >>> poisson_loss(params, {"x": jnp.array([[3.0]]), "y": jnp.array([2])}).tolist()
      [1.0]
    """
    z = predictor(params, rows)
    return jnp.exp(z) - rows["y"].astype(z.dtype) * z


@validated
def huber_regression(
    train: ClientData, validation: ClientData | None = None, *, knee: Positive = 1.345
) -> Problem:
    r"""Robust regression: the loss is quadratic up to a residual of ``knee``, then linear.

    .. math:: f = r^2 / 2 \text{ for } |r| \le \delta, \text{ else } \delta (|r| - \delta / 2),
              \qquad r = x^T w + b - y

    With a knee of 1.345 and normal noise of standard deviation 1 it has 95 percent of the
    efficiency of least squares; scale y so that the noise has about that size.

    Args:
      train: training data, with fields ``x`` and ``y``.
      validation: validation data, or ``None``.
      knee: delta, in the unit of y.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"x": np.ones((2, 3)), "y": np.array([1.0, 10.0])}
      >>> problem = fcojax.problems.huber_regression(fcojax.from_rows(rows, [1, 1]), knee=2.0)
      >>> zero = {"kernel": jnp.zeros(3), "bias": jnp.array(0.0)}
      >>> problem.loss(zero, problem.train.examples).tolist()  # 1 / 2, and 2 (10 - 1)
      [0.5, 18.0]

    References:
      Huber, "Robust estimation of a location parameter", 1964.
    """
    return linear_model(huber_loss(knee), train, validation)


@factory
def huber_loss(knee: Positive) -> Loss:
    """Return the loss of ``huber_regression``."""

    def loss(params, rows):
        residual = predictor(params, rows) - rows["y"]
        inner = jnp.clip(residual, -knee, knee)
        return inner * (residual - 0.5 * inner)

    return loss


@validated
def quantile_regression(
    train: ClientData,
    validation: ClientData | None = None,
    *,
    level: Probability = 0.5,
    width: Positive = 0.1,
) -> Problem:
    r"""Quantile regression, with the kink of the check loss smoothed over ``width``.

    .. math:: f = \begin{cases} r^2 / 2 h & -(1 - \tau) h \le r \le \tau h \\
                  \tau r - \tau^2 h / 2 & r > \tau h \\
                  (\tau - 1) r - (1 - \tau)^2 h / 2 & \text{else} \end{cases},
              \qquad r = y - x^T w - b

    the Moreau envelope with parameter h of the check loss :math:`\max(\tau r, (\tau - 1) r)`, which
    exceeds it by at most :math:`h \max(\tau, 1 - \tau)^2 / 2`.

    Args:
      train: training data.
      validation: validation data, or ``None``.
      level: tau, the quantile; 1/2 for the median, where f is half the absolute error.
      width: h, in the unit of y.

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


@factory
def quantile_loss(level: Probability, width: Positive) -> Loss:
    """Return the loss of ``quantile_regression``."""

    def loss(params, rows):
        residual = rows["y"] - predictor(params, rows)
        slope = jnp.clip(residual / width, level - 1, level)
        return slope * residual - 0.5 * width * slope**2

    return loss


@validated
def squared_hinge(train: ClientData, validation: ClientData | None = None) -> Problem:
    r"""A linear support vector machine with a smooth loss, for labels y in {0, 1}.

    .. math:: f(w, b; x, y) = \max(1 - s (x^T w + b), 0)^2, \qquad s = 2 y - 1

    Args:
      train: training data, with fields ``x`` and ``y``.
      validation: validation data, or ``None``.

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


def squared_hinge_loss(params: Params, rows: PyTree) -> Array:
    """Return ``max(1 - s (x^T kernel + bias), 0)^2`` for each row, with s = 2 y - 1."""
    z = predictor(params, rows)
    return jax.nn.relu(1 - (2 * rows["y"].astype(z.dtype) - 1) * z) ** 2
