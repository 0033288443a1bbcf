"""Neural networks written in Flax NNX, as problems whose params are a plain dict of arrays."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from fcojax.problems.clients import ClientData
from fcojax.problems.labels import check_splits
from fcojax.problems.measures import accuracy, at_cuts, density
from fcojax.problems.problem import Problem

Build = Callable[[nnx.Rngs], nnx.Module]  # a fresh model, its weights drawn from the streams


class TwoLayer(nnx.Module):
    """A fully connected network with two hidden layers and ReLU."""

    def __init__(self, num_features: int, num_hidden: int, num_classes: int, rngs: nnx.Rngs):
        self.dense_1 = _dense(num_features, num_hidden, rngs)
        self.dense_2 = _dense(num_hidden, num_hidden, rngs)
        self.dense_3 = _dense(num_hidden, num_classes, rngs)

    def __call__(self, x):
        x = nnx.relu(self.dense_1(x.reshape(x.shape[0], -1)))
        return self.dense_3(nnx.relu(self.dense_2(x)))


class ConvNet(nnx.Module):
    """Two convolutions of 5 x 5, each followed by a maximum over 2 x 2, and two dense layers."""

    def __init__(self, shape, num_filters, num_hidden: int, num_classes: int, rngs: nnx.Rngs):
        self.shape = tuple(shape)
        first, second = num_filters
        options = {"kernel_init": nnx.initializers.glorot_uniform(), "rngs": rngs}
        self.conv_1 = nnx.Conv(shape[2], first, (5, 5), **options)
        self.conv_2 = nnx.Conv(first, second, (5, 5), **options)
        self.dense_1 = _dense((shape[0] // 4) * (shape[1] // 4) * second, num_hidden, rngs)
        self.dense_2 = _dense(num_hidden, num_classes, rngs)

    def __call__(self, x):
        x = x.reshape(x.shape[0], *self.shape)
        for conv in (self.conv_1, self.conv_2):
            x = nnx.max_pool(nnx.relu(conv(x)), (2, 2), (2, 2))
        return self.dense_2(nnx.relu(self.dense_1(x.reshape(x.shape[0], -1))))


def two_layer(num_features: int = 784, num_hidden: int = 200, num_classes: int = 10) -> Build:
    """The network 784-200-200-10 by default; the dense layers are ``dense_1`` to ``dense_3``."""
    return lambda rngs: TwoLayer(num_features, num_hidden, num_classes, rngs)


def conv_net(
    shape: tuple[int, int, int] = (28, 28, 1),
    num_filters: tuple[int, int] = (32, 64),
    num_hidden: int = 512,
    num_classes: int = 10,
) -> Build:
    """Layers ``conv_1``, ``conv_2``, ``dense_1`` and ``dense_2`` on images of ``shape``."""
    return lambda rngs: ConvNet(shape, num_filters, num_hidden, num_classes, rngs)


def network(
    build: Build,
    train: ClientData,
    validation: ClientData | None = None,
    *,
    num_classes: int,
    cuts: Sequence[float] = (1e-4, 1e-2),
) -> Problem:
    """Classification of ``x`` into classes ``y`` by a network, with the cross-entropy loss.

    Params are a dict of dicts of arrays, one per layer, so that penalties and constraints can be
    put on parts of it: ``on_subtree(per_leaf(l1_ball()), dense_kernels)`` is one ball for each
    dense kernel, with biases and convolutions free. The measures are the ``accuracy`` on
    validation and the ``density`` of the dense kernels.

    Args:
      build: makes the model, say ``two_layer()``; called for its structure, and in ``init``.
      train: the clients.
      validation: clients that only judge.
      num_classes: outputs of the model.
      cuts: magnitudes above which a weight counts as nonzero.

    Raises:
      ValueError: if the model has state beyond its parameters, as batch statistics or dropout keys
        are: one round has no place for it.
    """
    check_splits(train, validation, num_classes)
    graph, start, rest = nnx.split(nnx.eval_shape(lambda: build(nnx.Rngs(0))), nnx.Param, ...)
    if jax.tree.leaves(rest):
        raise ValueError(
            f"the model keeps state beyond its parameters ({sorted(map(str, rest))}); leave out "
            "dropout and batch normalisation."
        )
    example = jax.eval_shape(lambda x: x[:1], train.examples["x"])
    outputs = jax.eval_shape(lambda params, x: nnx.merge(graph, params)(x), start, example).shape
    if outputs != (1, num_classes):
        raise ValueError(
            f"the model gives {outputs} for one example; num_classes = {num_classes} needs "
            f"{(1, num_classes)}."
        )

    def init(key):
        return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))

    def logits(params, rows):
        return nnx.merge(graph, params)(rows["x"])

    def loss(params, rows):
        return optax.softmax_cross_entropy_with_integer_labels(logits(params, rows), rows["y"])

    def predict(params, rows):
        return jnp.argmax(logits(params, rows), axis=1).astype(rows["y"].dtype)

    right = accuracy(predict, validation)

    def measures(params):
        leaves = jax.tree_util.tree_leaves_with_path(params)
        kernels = [leaf for path, leaf in leaves if dense_kernels(path, leaf)]
        return right(params) | (at_cuts(lambda cut: density(kernels, cut), cuts) if kernels else {})

    return Problem(loss, train, validation, init, measures)


def dense_kernels(path, leaf) -> bool:
    """A predicate for ``transforms.on_subtree``: the kernels of layers named ``dense...``.

    Example:
      >>> params = {"conv_1": {"kernel": 0.0}, "dense_1": {"kernel": 1.0, "bias": 2.0}}
      >>> [leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)
      ...  if dense_kernels(path, leaf)]
      [1.0]
    """
    del leaf
    entries = [jax.tree_util.keystr((entry,), simple=True) for entry in path]
    return entries[-1] == "kernel" and any(entry.startswith("dense") for entry in entries)


def _dense(num_in: int, num_out: int, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(num_in, num_out, kernel_init=nnx.initializers.glorot_uniform(), rngs=rngs)
