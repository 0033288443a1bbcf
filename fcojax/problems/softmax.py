r"""Multiclass (softmax) logistic regression."""

from collections.abc import Sequence

import jax.numpy as jnp
import optax

from fcojax.arguments import validated
from fcojax.problems.client_data import ClientData
from fcojax.problems.linear_models import classifier
from fcojax.problems.problem import Problem
from fcojax.types import Array, Count, Params, PyTree


@validated
def softmax(
    train: ClientData,
    validation: ClientData | None = None,
    *,
    num_classes: Count,
    cuts: Sequence[float] = (1e-4, 1e-2),
) -> Problem:
    r"""Softmax regression on features ``x`` and labels ``y`` in {0, ..., C - 1}.

    .. math:: f(W, b; x, y) = \log \sum_c \exp(z_c) - z_y, \qquad z = W^T x + b

    The measures are the ``accuracy`` on validation and the ``density`` of the kernel.

    Args:
      train: training data.
      validation: validation data, or ``None``.
      num_classes: number of classes C, of which some may not occur in the data.
      cuts: magnitudes above which a weight counts; all but the first appear in the measures' names.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"x": np.ones((2, 3)), "y": np.array([0, 4])}, [1, 1])
      >>> problem = fcojax.problems.softmax(data, num_classes=5)
      >>> params = problem.init(jax.random.key(0))
      >>> params["kernel"].shape, params["bias"].shape
      ((3, 5), (5,))
    """
    return classifier(cross_entropy, predict, train, validation, (num_classes,), cuts)


def cross_entropy(params: Params, rows: PyTree) -> Array:
    """Return ``log sum_c exp(z_c) - z_y`` for each row, with z = x^T kernel + bias."""
    return optax.softmax_cross_entropy_with_integer_labels(_logits(params, rows), rows["y"])


def predict(params: Params, rows: PyTree) -> Array:
    """Return the most probable class of each row."""
    return jnp.argmax(_logits(params, rows), axis=1).astype(rows["y"].dtype)


def _logits(params, rows):
    return rows["x"] @ params["kernel"] + params["bias"][None, :]
