"""Classification with a network."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import optax

from fcojax import ClientData
from fcojax.arguments import validated
from fcojax.networks.kernels import dense_density
from fcojax.networks.modules import Module, functions_of, loss_of
from fcojax.problems import Problem
from fcojax.problems.labels import check_splits
from fcojax.problems.measures import on_validation
from fcojax.types import Count


@validated
def network(
    model: Module,
    train: ClientData,
    validation: ClientData | None = None,
    *,
    num_classes: Count,
    cuts: Sequence[float] = (1e-4, 1e-2),
) -> Problem:
    r"""Classify ``x`` into classes ``y`` with a network and the cross-entropy loss.

    .. math:: f(w; x, y) = \log \sum_c \exp(z_c) - z_y, \qquad z = \mathrm{model}_w(x)

    Params are a dict of dicts of arrays, one per layer, so penalties and constraints can apply to
    parts of it: ``on_subtree(per_leaf(l1_ball()), dense_kernels)`` constrains each dense kernel to
    its own ball and leaves biases and convolutions free. The measures are ``validation_loss`` and
    ``accuracy`` on validation, without dropout, and the ``density`` of the dense kernels, or of
    all matrices where no layer is named ``dense...``. The loss
    on the training data is ``population_loss(problem.loss, params, data)``.

    Args:
      model: a Linen module, ``(rngs) -> module`` that builds an NNX one, such as ``two_layer()``,
        or the ``Functions`` of a model of another library. A Linen module with an argument
        ``train``, ``training`` or ``deterministic`` of ``__call__`` receives it; an NNX module is
        put into ``train`` or ``eval`` mode.
      train: training data.
      validation: validation data, or ``None``.
      num_classes: number of classes, the outputs of the model.
      cuts: magnitudes above which a weight counts; all but the first appear in the measures' names.

    Raises:
      ValueError: if the model has state besides its parameters, such as batch statistics.

    Example:
      >>> import flax.linen as nn
      >>> import fcojax
      >>> class Net(nn.Module):
      ...     @nn.compact
      ...     def __call__(self, x, train):
      ...         x = nn.relu(nn.Dense(8)(x))
      ...         return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x))
      >>> rows = {"x": jnp.ones((4, 5), jnp.float32), "y": jnp.arange(4) % 3}
      >>> problem = network(Net(), fcojax.from_rows(rows, [2, 2]), num_classes=3)
      >>> problem.loss(problem.init(jax.random.key(0)), rows).shape
      (4,)
    """
    check_splits(train, validation, num_classes)
    example = jax.eval_shape(lambda x: x[:1], train.examples["x"])
    functions = functions_of(model, example, (1, num_classes))

    def cross_entropy(logits, rows):
        return optax.softmax_cross_entropy_with_integer_labels(logits, rows["y"])

    def is_correct(params, rows):
        guesses = jnp.argmax(functions.apply(params, rows["x"], None), axis=1)
        return (guesses.astype(rows["y"].dtype) == rows["y"]).astype(jnp.result_type(float))

    loss, dense = loss_of(functions, cross_entropy), dense_density(cuts)
    measured = on_validation(validation, validation_loss=loss, accuracy=is_correct)

    def measures(params):
        return measured(params) | dense(params)

    return Problem(loss, train, validation, functions.init, measures, convex=False)
