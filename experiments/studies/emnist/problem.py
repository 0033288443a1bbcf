"""Softmax regression or a network on digits, with each dense kernel in a ball."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.studies.shared import by_writer
from experiments.study import Config, from_config
from fcojax import datasets, problems
from fcojax.problems import ClientData, Problem, population_loss
from fcojax.problems.client_data import ids_of
from fcojax.transforms import Penalty, l1_ball, l2_ball, named, on_subtree, per_leaf
from fcojax.types import Array, Params

NUM_CLASSES = 10
_SIDE = 28  # of an image
SYNTHETIC = "synthetic"


class Data(NamedTuple):
    """Digits for training and validation, and the name of the data in tables."""

    name: str
    train: ClientData
    validation: ClientData


class Task(NamedTuple):
    """A model on its data, with one ball for each dense kernel.

    Attributes:
      problem: the loss and its measures.
      ball: the constraint; its ``scale`` is the radius.
      observe: ``(hparams, params, (train, validation)) -> dict``, the measures of a point;
        ``violation`` is the largest relative excess of a kernel's norm over the radius.
    """

    problem: Problem
    ball: Penalty
    observe: Callable[[Any, Params, tuple[ClientData, ClientData]], dict[str, Array]]


def data(config: Config) -> Data:
    """Return federated EMNIST or MNIST by writer from ``config.data_dir``, or synthetic data."""
    if not config.data_dir:
        options = {"num_classes": NUM_CLASSES, "seed": config.data_seed}
        drawn = from_config(problems.synthetic_softmax, config, **options)
        return Data(SYNTHETIC, drawn.train, drawn.validation)
    share, stem = config.share_of_writers, pathlib.Path(config.data_dir) / "fed_emnist_digitsonly"
    if stem.with_name(f"{stem.name}_train.h5").exists():
        train = datasets.by_client(datasets.emnist(f"{stem}_train.h5", share=share), "examples")
        test = datasets.emnist(f"{stem}_test.h5", client_ids=ids_of(train).tolist())
        return Data("EMNIST", train, datasets.by_client(test, "examples"))
    return Data("MNIST", *by_writer(config))


def task(config: Config, digits: Data, model: str, constraint: str) -> Task:
    """Return the task of a model whose dense kernels lie in balls of the norm ``constraint``."""
    problem, chosen = _model(config, digits, model)
    ball, norm = {
        "l1": (l1_ball(), jnp.sum),
        "l2": (l2_ball(), lambda sizes: jnp.sqrt(jnp.sum(sizes**2))),
    }[constraint]

    def observe(hparams, params, context):
        train, validation = (population_loss(problem.loss, params, data) for data in context)
        leaves = jax.tree_util.tree_leaves_with_path(params)
        norms = [norm(jnp.abs(leaf)) for path, leaf in leaves if chosen(path, leaf)]
        excess = jnp.maximum(jnp.max(jnp.stack(norms)) / hparams.penalty_scale - 1, 0)
        found = {"loss": train, "validation_loss": validation, "violation": excess}
        return found | problem.measures(params)

    return Task(problem, on_subtree(per_leaf(ball), chosen), observe)


def _random(config: Config, data: ClientData) -> ClientData:
    """Return random cosine features, which approximate a Gaussian kernel."""
    return problems.random_features(data, num_features=config.num_features, seed=config.data_seed)


def _quadratic(config: Config, data: ClientData) -> ClientData:
    """Return products of pixels; of images, of the means over four pixels.

    The 307,720 products of 784 pixels are 1.2 MB an image, the 19,306 of 196 means 77 kB.
    """
    x = data.examples["x"]
    if x.shape[1] == _SIDE**2:
        half = _SIDE // 2
        x = x.reshape(-1, half, 2, half, 2).mean(axis=(2, 4)).reshape(-1, half**2)
    pooled = dataclasses.replace(data, examples={**data.examples, "x": x})
    return problems.quadratic_features(pooled)


# The models that are linear in features of the images.
_LINEAR = {"softmax": lambda config, data: data, "klr": _random, "qlr": _quadratic}


def _model(config: Config, digits: Data, model: str) -> tuple[Problem, Callable]:
    """Return the problem, and a predicate that selects the constrained leaves."""
    from fcojax.networks import conv_net, dense_kernels, network, two_layer

    options = {"num_classes": NUM_CLASSES, "cuts": (config.cut,)}
    sets, num_features = (digits.train, digits.validation), digits.train.examples["x"].shape[1]
    if model in _LINEAR:
        sets = [_LINEAR[model](config, part) for part in sets]
        return problems.softmax(*sets, **options), named("kernel")
    if model == "mlp":
        build = two_layer(num_features, config.num_hidden, NUM_CLASSES)
    elif num_features != _SIDE**2:
        raise ValueError(
            f"model={model} needs images of 28 x 28, not {num_features} features; pass data_dir, "
            "or leave it out of models."
        )
    else:
        build = conv_net((28, 28, 1), tuple(config.cnn_filters), config.cnn_hidden, NUM_CLASSES)
    return network(build, *sets, **options), dense_kernels
