"""Language models: prediction of the next token, with padding masked."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fcojax import ClientData
from fcojax.extend import SPLITS, check_labels, on_validation, validated
from fcojax.networks.modules import Module, functions_of, loss_of
from fcojax.problems import Problem
from fcojax.types import Count


@validated
def language_model(
    model: Module,
    train: ClientData,
    validation: ClientData | None = None,
    *,
    num_tokens: Count,
    padding: int = 0,
) -> Problem:
    r"""Predict ``y[t]`` from ``x[0], ..., x[t]``, integers of shape [examples, time].

    The loss of a sequence is the mean over its tokens that are not padding,

    .. math:: f(w; x, y) = \sum_t m_t \ell_t \Big/ \sum_t m_t, \qquad m_t = [y_t \ne \mathrm{pad}]

    with the cross entropy :math:`\ell_t`, so short and long sequences have equal weight. The
    measures are ``validation_loss`` and ``accuracy`` on validation, averaged in the same way,
    without dropout.

    Args:
      model: a Linen module, ``(rngs) -> module`` that builds an NNX one, as ``char_lstm()``, or
        ``Functions``; from tokens [examples, time] to logits [examples, time, num_tokens].
      train: training data, with fields ``x`` and ``y``, usually ``x`` shifted by one token.
      validation: validation data, or ``None``.
      num_tokens: number of different tokens, including padding.
      padding: the token that marks padding.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> from fcojax import networks
      >>> text = np.array([[1, 2, 3, 0], [2, 1, 0, 0]], np.int32)  # 0 is padding
      >>> data = fcojax.from_rows({"x": text[:, :-1], "y": text[:, 1:]}, [1, 1])
      >>> problem = networks.language_model(
      ...     networks.char_lstm(num_tokens=4, num_units=4), data, num_tokens=4)
      >>> params = jax.eval_shape(problem.init, jax.random.key(0))
      >>> jax.eval_shape(problem.loss, params, data.examples).shape  # one number per sequence
      (2,)
    """
    for data, owner in zip((train, validation), SPLITS, strict=True):
        if data is not None:
            _check_tokens(data, num_tokens, padding, owner)
    example = jax.eval_shape(lambda x: x[:1], train.examples["x"])
    functions = functions_of(model, example, (*example.shape, num_tokens))

    def mean_over_tokens(numbers, rows):
        real = rows["y"] != padding
        return jnp.mean(numbers, axis=1, where=real)

    def cross_entropy(logits, rows):
        each = optax.softmax_cross_entropy_with_integer_labels(logits, rows["y"])
        return mean_over_tokens(each, rows)

    def share_correct(params, rows):
        guesses = jnp.argmax(functions.apply(params, rows["x"], None), axis=2)
        correct = guesses.astype(rows["y"].dtype) == rows["y"]
        return mean_over_tokens(correct.astype(jnp.result_type(float)), rows)

    loss = loss_of(functions, cross_entropy)
    measures = on_validation(validation, validation_loss=loss, accuracy=share_correct)
    return Problem(loss, train, validation, functions.init, measures)


def _check_tokens(data: ClientData, num_tokens: int, padding: int, owner: str) -> None:
    """Raise unless ``x`` and ``y`` hold tokens, and each sequence a target besides padding."""
    x, y = np.asarray(data.examples["x"]), np.asarray(data.examples["y"])
    if x.ndim != 2 or x.shape != y.shape:
        raise ValueError(
            f"x of {owner} has shape {x.shape} and y {y.shape}; pass tokens of shape "
            "[examples, time] for both."
        )
    for tokens in (x, y):
        check_labels(
            tokens.reshape(-1), num_tokens, owner, lambda place: f"row {place // x.shape[1]}"
        )
    empty = ~np.any(y != padding, axis=1)
    if empty.any():
        raise ValueError(
            f"row {int(np.argmax(empty))} of {owner} has no target but padding, {padding}; drop "
            "empty sequences."
        )
