"""Classification by a network."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import optax

from fcojax.problems.clients import ClientData
from fcojax.problems.labels import check_splits
from fcojax.problems.measures import accuracy
from fcojax.problems.networks.kernels import dense_density
from fcojax.problems.networks.modules import Module, functions_of, loss_of, refuse_swapped
from fcojax.problems.problem import Problem


def network(
    model: Module,
    train: ClientData,
    validation: ClientData | None = None,
    *,
    num_classes: int,
    cuts: Sequence[float] = (1e-4, 1e-2),
) -> Problem:
    r"""Classification of ``x`` into classes ``y`` by a network, with the cross-entropy loss.

    .. math:: f(w; x, y) = \log \sum_c \exp(z_c) - z_y, \qquad z = \mathrm{model}_w(x)

    Params are a dict of dicts of arrays, one per layer, so that penalties and constraints can be
    put on parts of it: ``on_subtree(per_leaf(l1_ball()), dense_kernels)`` is one ball for each
    dense kernel, with biases and convolutions free. The measures are the ``accuracy`` on
    validation, judged without dropout, and the ``density`` of the dense kernels.

    Args:
      model: a Linen module, or ``(rngs) -> module`` that builds an NNX one, say ``two_layer()``;
        called for its structure, and in ``init``. A Linen module whose ``__call__`` takes
        ``train``, ``training`` or ``deterministic`` is told; an NNX one is put into ``train`` or
        ``eval`` mode.
      train: the clients.
      validation: clients that only judge.
      num_classes: outputs of the model.
      cuts: magnitudes above which a weight counts as nonzero.

    Raises:
      ValueError: if the model has state beyond its parameters, as batch normalisation has.

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
    refuse_swapped(model, train)
    check_splits(train, validation, num_classes)
    example = jax.eval_shape(lambda x: x[:1], train.examples["x"])
    functions = functions_of(model, example, (1, num_classes))

    def predict(params, rows):
        logits = functions.apply(params, rows["x"], None)
        return jnp.argmax(logits, axis=1).astype(rows["y"].dtype)

    def cross_entropy(logits, rows):
        return optax.softmax_cross_entropy_with_integer_labels(logits, rows["y"])

    right, dense = accuracy(predict, validation), dense_density(cuts)
    return Problem(
        loss_of(functions, cross_entropy),
        train,
        validation,
        functions.init,
        lambda params: right(params) | dense(params),
    )
