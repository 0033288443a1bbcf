r"""Binary logistic regression, with an unpenalised bias."""

from collections.abc import Sequence

import jax
import numpy as np

from fcojax.arguments import validated
from fcojax.problems.client_data import ClientData
from fcojax.problems.linear_models import classifier, predictor
from fcojax.problems.problem import Problem
from fcojax.types import Array, Params, PyTree


@validated
def logistic(
    train: ClientData, validation: ClientData | None = None, *, cuts: Sequence[float] = (1e-4, 1e-2)
) -> Problem:
    r"""Logistic regression on features ``x`` and labels ``y`` in {0, 1}.

    .. math:: f(w, b; x, y) = \log\big(1 + \exp(-s (x^T w + b))\big), \qquad s = 2 y - 1

    The measures are the ``accuracy`` on validation at probability one half, and the ``density`` of
    the kernel.

    Args:
      train: training data.
      validation: validation data, or ``None``.
      cuts: magnitudes above which a weight counts; all but the first appear in the measures' names.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"x": np.array([[2.0], [-2.0], [3.0]]), "y": np.array([1, 0, 0])}
      >>> data = fcojax.from_rows(rows, [3])
      >>> problem = fcojax.problems.logistic(data, validation=data)
      >>> params = {"kernel": jnp.array([1.0]), "bias": jnp.array(0.0)}
      >>> round(float(problem.measures(params)["accuracy"]), 3)  # two of three
      0.667
    """
    problem = classifier(logistic_loss, predict, train, validation, (), cuts)
    labels = np.asarray(train.examples["y"])
    if labels.min() == labels.max():
        raise ValueError(
            f"every label y of the training data is {labels[0]}; pass examples of both classes, 0 "
            "and 1, because the loss of one class alone has no minimum."
        )
    return problem


def logistic_loss(params: Params, rows: PyTree) -> Array:
    """Return ``log(1 + exp(-s (x^T kernel + bias)))`` for each row, with s = 2 y - 1.

    Value and gradient are accurate at any margin.

    Example:
      >>> import jax.numpy as jnp
      >>> params = {"kernel": jnp.array([1.0]), "bias": jnp.array(0.0)}
      >>> rows = {"x": jnp.array([[1e4], [-1e4]]), "y": jnp.array([1, 1])}
      >>> logistic_loss(params, rows).tolist()
      [0.0, 10000.0]
    """
    logits = predictor(params, rows)
    return jax.nn.softplus((1 - 2 * rows["y"].astype(logits.dtype)) * logits)


def predict(params: Params, rows: PyTree) -> Array:
    """Return the more probable label of each row."""
    return (predictor(params, rows) > 0).astype(rows["y"].dtype)
