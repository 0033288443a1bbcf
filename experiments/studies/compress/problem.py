"""A heterogeneous lasso, softmax regression on digits, and a small convolutional network."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row
from experiments.studies.compare.problem import clients_of
from experiments.study import Config
from fcojax import datasets, tree
from fcojax.algorithms import Work
from fcojax.datasets.reading import optional
from fcojax.problems import factored_loss, from_rows, partition, population_loss, softmax
from fcojax.problems.losses import Loss
from fcojax.reference import fista
from fcojax.transforms import Penalty, l1, named, on_subtree
from fcojax.types import Array, Params

_NUM_CLASSES = 10


class Task(NamedTuple):
    """A problem, and the work of its clients.

    Attributes:
      loss: one loss per example.
      data: the clients.
      penalty: psi.
      scale: its strength.
      start: the start point.
      work: the K local steps of a client in a round.
      observe: ``(hparams, model, context) -> dict``, the measures of a point.
      smoothness: the largest curvature L of any client's loss; ``None`` if there is no bound.
      context: the data that ``observe`` reads.
    """

    loss: Loss
    data: fcojax.ClientData
    penalty: Penalty
    scale: float
    start: Params
    work: Work
    observe: Callable[[Any, Params, Any], dict[str, Array]]
    smoothness: float | None = None
    context: Any = None


def lasso(config: Config) -> tuple[Task, Row]:
    """Return least squares with an l1 norm on clients that differ in Hessians and true weights."""
    _, data = clients_of(config, config.own, own_axes=True)
    largest = float(data.examples.curvatures.max())
    return _solved(factored_loss, data, l1(), config, jnp.zeros(config.dim), largest)


def digits(config: Config) -> tuple[Task, Row]:
    """Return softmax regression with ridge and l1 terms of the kernel, on heterogeneous clients."""
    own, (name, train, test) = config.own, images(config)
    problem = softmax(train, test, num_classes=_NUM_CLASSES)

    def loss(params, rows):
        return problem.loss(params, rows) + own.ridge / 2 * tree.vdot(params, params)

    ends, features = np.asarray(train.offsets), np.asarray(train.examples["x"])
    both = np.append(features, np.ones((len(features), 1)), axis=1)
    # The softmax has curvature at most 1/2.
    largest = own.ridge + 0.5 * max(
        np.linalg.norm(both[first:end], 2) ** 2 / (end - first)
        for first, end in zip(ends, ends[1:], strict=False)
    )
    penalty, wide = on_subtree(l1(), named("kernel")), jnp.result_type(float)
    start = jax.tree.map(lambda leaf: leaf.astype(wide), problem.init(jax.random.key(0)))
    task, facts = _solved(loss, train, penalty, config, start, float(largest))
    accuracy = float(problem.measures(task.context)["accuracy"])
    return task, {"data": name, "images": int(ends[-1]), "accuracy": accuracy} | facts


def _solved(
    loss: Loss, data: fcojax.ClientData, penalty: Penalty, config: Config, start: Params, largest
) -> tuple[Task, Row]:
    """Return a convex task with its optimum, and facts about it."""
    objective, scale = functools.partial(population_loss, loss), config.own.scale
    found = fista(objective, penalty, scale, start, data, tolerance=1e-13)
    facts = {
        "clients": data.num_clients,
        "largest_smoothness": largest,
        "nonzeros": int(np.count_nonzero(_penalised(found.params))),
        "residual": float(found.residual),
    }
    work = fcojax.local_steps(config.own.num_steps)
    return Task(loss, data, penalty, scale, start, work, _to_optimum, largest, found.params), facts


def _penalised(params: Params) -> Array:
    return jax.tree.leaves(params)[-1]  # the kernel, which comes after the bias


def _to_optimum(hparams: Any, model: Params, optimum: Params) -> dict[str, Array]:
    found, true = (_penalised(params) != 0 for params in (model, optimum))
    return {
        "distance": tree.norm(tree.sub(model, optimum)) / tree.norm(optimum),
        "f1": 2 * jnp.sum(found & true) / jnp.maximum(jnp.sum(found) + jnp.sum(true), 1),
    }


def network(config: Config) -> tuple[Task, Row]:
    """Return a small convolutional network with an l1 norm of its dense kernels."""
    from fcojax import networks

    own, (name, train, test) = config.own, images(config)
    side = round(train.examples["x"].shape[1] ** 0.5)
    build = networks.conv_net((side, side, 1), tuple(own.filters), own.num_hidden, _NUM_CLASSES)
    problem = networks.network(build, train, test, num_classes=_NUM_CLASSES)

    def observe(hparams, model, context):
        measured = problem.measures(model)
        return {"error": 1 - measured["accuracy"], "density": measured["density"]}

    start = problem.init(jax.random.key(config.data_seed))
    facts = {
        "data": name,
        "clients": train.num_clients,
        "images": int(train.offsets[-1]),
        "test_images": int(test.offsets[-1]),
        "weights": sum(leaf.size for leaf in jax.tree.leaves(start)),
    }
    penalty = on_subtree(l1(), networks.dense_kernels)
    work = fcojax.local_steps(own.num_steps, own.batch_size)
    return Task(problem.loss, train, penalty, own.scale, start, work, observe), facts


def images(config: Config) -> tuple[str, fcojax.ClientData, fcojax.ClientData]:
    """Return MNIST by writer, or scikit-learn's digits for clients with different labels."""
    if config.data_dir:
        found = [
            datasets.by_client(datasets.mnist(config.data_dir, split), "examples")
            for split in ("train", "test")
        ]
        counts = [max(1, round(config.share_of_writers * data.num_clients)) for data in found]
        return "MNIST", *(data.select(np.arange(n)) for data, n in zip(found, counts, strict=True))
    found = optional("sklearn.datasets", "data").load_digits()
    x, y = found.data / 16, found.target.astype(np.int32)
    held = np.arange(y.size) % 5 == 0  # every fifth example is for testing
    rows = {"x": x[~held], "y": y[~held]}
    train = partition.dirichlet(
        rows["y"], config.num_clients, config.own.concentration, min_size=20, seed=config.data_seed
    ).apply(rows, "examples")
    test = from_rows({"x": x[held], "y": y[held]}, [int(held.sum())])
    return "scikit-learn's digits", train, test
