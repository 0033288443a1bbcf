"""Multi-label classification: prediction of tags from bags of words."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.typing import DTypeLike

from fcojax.arguments import validated
from fcojax.networks.kernels import dense_density
from fcojax.networks.modules import Build, Module, functions_of, loss_of
from fcojax.problems.clients import ClientData
from fcojax.problems.labels import SPLITS
from fcojax.problems.measures import on_validation
from fcojax.problems.problem import Problem
from fcojax.types import Count


class Linear(nnx.Module):
    """One dense layer."""

    def __init__(self, num_words, num_tags, dtype, rngs):
        glorot = nnx.initializers.glorot_uniform()
        self.dense = nnx.Linear(num_words, num_tags, kernel_init=glorot, dtype=dtype, rngs=rngs)

    def __call__(self, x):
        return self.dense(x)


@validated
def tag_regression(
    num_words: Count = 10_000, num_tags: Count = 500, *, dtype: DTypeLike | None = None
) -> Build:
    """Build a logistic regression of every tag on the words, with one layer ``dense``.

    Args:
      num_words: number of inputs.
      num_tags: number of outputs.
      dtype: dtype of the computation; by default that of the parameters, float32.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> words = jax.ShapeDtypeStruct((1, 10_000), jnp.float32)
      >>> init = networks.functions_of(networks.tag_regression(), words, (1, 500)).init
      >>> jax.eval_shape(init, jax.random.key(0))["dense"]["kernel"].shape
      (10000, 500)

    References:
      Reddi et al., "Adaptive federated optimization", ICLR 2021, on Stack Overflow.
    """
    return lambda rngs: Linear(num_words, num_tags, dtype, rngs)


@validated
def tag_model(
    model: Module,
    train: ClientData,
    validation: ClientData | None = None,
    *,
    num_tags: Count,
    num_guesses: Count = 5,
    cuts: Sequence[float] = (1e-4, 1e-2),
) -> Problem:
    r"""Predict tags ``y`` in {0, 1}, of shape [examples, num_tags], from ``x``.

    .. math:: f(w; x, y) = \sum_c \log(1 + \exp(z_c)) - y_c z_c, \qquad z = \mathrm{model}_w(x)

    The measures are ``validation_loss`` and, on validation, ``recall``, the share of an example's
    tags that are among the ``num_guesses`` most probable, and the ``density`` of the dense kernels.

    Args:
      model: a Linen module, ``(rngs) -> module`` that builds an NNX one, or ``Functions``.
      train: training data.
      validation: validation data, or ``None``.
      num_tags: number of tags, the outputs of the model.
      num_guesses: number k of the recall at k.
      cuts: magnitudes above which a weight counts; all but the first are in the measures' names.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax import networks
      >>> rows = {"x": np.ones((4, 6), np.float32), "y": np.zeros((4, 3), np.float32)}
      >>> data = fcojax.from_rows(rows, [2, 2])
      >>> model = networks.tag_regression(num_words=6, num_tags=3)
      >>> problem = networks.tag_model(model, data, num_tags=3, num_guesses=2)
      >>> params = jax.eval_shape(problem.init, jax.random.key(0))
      >>> jax.eval_shape(problem.loss, params, data.examples).shape
      (4,)
    """
    for data, owner in zip((train, validation), SPLITS, strict=True):
        if data is not None:
            _check_tags(data, num_tags, owner)
    example = jax.eval_shape(lambda x: x[:1], train.examples["x"])
    functions = functions_of(model, example, (1, num_tags))

    def cross_entropy(logits, rows):
        tags = rows["y"].astype(logits.dtype)
        return jnp.sum(optax.sigmoid_binary_cross_entropy(logits, tags), axis=1)

    def recalled(params, rows):
        _, guesses = jax.lax.top_k(functions.apply(params, rows["x"], None), num_guesses)
        tags = rows["y"].astype(jnp.result_type(float))
        right = jnp.sum(jnp.take_along_axis(tags, guesses, axis=1), axis=1)
        return right / jnp.maximum(jnp.sum(tags, axis=1), 1)  # 0 without tags

    loss, dense = loss_of(functions, cross_entropy), dense_density(cuts)
    measured = on_validation(validation, validation_loss=loss, recall=recalled)
    return Problem(
        loss, train, validation, functions.init, lambda params: measured(params) | dense(params)
    )


def _check_tags(data: ClientData, num_tags: int, owner: str) -> None:
    y = np.asarray(data.examples["y"])
    if y.shape[1:] != (num_tags,) or not np.isin(y, (0, 1)).all():
        raise ValueError(
            f"y of {owner} has shape {y.shape} and values from {y.min()} to {y.max()}; pass 0 or 1 "
            f"for each example and each of {num_tags} tags."
        )
