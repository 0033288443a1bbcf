"""One small instance of every problem, with a step size at which gradient steps descend."""

import functools
import inspect
import typing
from typing import NamedTuple

import jax
import numpy as np

from fcojax import networks, problems
from fcojax.problems import Problem, population_loss
from fcojax.problems.building import from_rows
from fcojax.transforms import Penalty, stiefel


class Family(NamedTuple):
    problem: problems.Problem
    client_lr: float
    constraint: Penalty | None = None


def on_manifold(manifold):
    """Return a manifold as a constraint, for algorithms with a prox."""
    return Penalty(lambda x, scale: 0.0 * scale, lambda v, step, scale: manifold.project(v))


STIEFEL = on_manifold(stiefel())


@functools.cache
def images(num_clients=3, num_examples=4, shape=(4, 4), num_classes=3):
    rng = np.random.default_rng(0)
    num_rows = num_clients * num_examples
    x = rng.random((num_rows, np.prod(shape)), dtype=np.float32)
    y = rng.integers(num_classes, size=num_rows, dtype=np.int32)
    return from_rows({"x": x, "y": y}, [num_examples] * num_clients)


def _features():
    data = problems.random_features(images(), num_features=8, bandwidth=2.0)
    return problems.softmax(data, data, num_classes=3)


BUILDERS = {
    "least_squares": lambda: Family(
        problems.synthetic_least_squares(num_clients=3, num_examples=8, dim=4, truth_spread=1.0),
        0.1,
    ),
    "ridge": lambda: Family(
        problems.synthetic_least_squares(num_clients=3, num_examples=3, dim=4, ridge=0.5), 0.1
    ),
    "softmax": lambda: Family(
        problems.synthetic_softmax(num_clients=3, dim=5, num_classes=3, size_log_mean=1.0), 0.05
    ),
    "low_rank": lambda: Family(
        problems.low_rank(
            num_clients=3, num_examples=8, shape=(4, 3), true_rank=2, num_validation=2
        ),
        0.01,
    ),
    "matrix_completion": lambda: Family(
        problems.synthetic_matrix_completion(
            num_clients=3, shape=(5, 6), true_rank=2, num_validation=2
        ),
        0.5,
    ),
    "pca": lambda: Family(
        problems.synthetic_pca(num_clients=3, num_examples=8, dim=5, num_components=2),
        0.05,
        STIEFEL,
    ),
    "fmri": lambda: Family(
        problems.fmri_surrogate(
            sessions=(2, 1),
            num_scans=6,
            grid=(4, 5, 6),
            num_voxels=60,
            num_blobs=2,
            share_true=0.1,
        ),
        0.01,
    ),
    "random_features": lambda: Family(_features(), 0.1),
}


# A small instance of each network: its factory, its sizes, its data, and the number of its outputs
# for an example.
NETWORKS = {
    "two_layer": (networks.two_layer, (16, 5, 3), images, (3,)),
    "conv_net": (networks.conv_net, ((4, 4, 1), (2, 3), 5, 3), images, (3,)),
    "emnist_net": (networks.emnist_net, ((8, 8, 1), 3), lambda: images(3, 4, (8, 8)), (3,)),
}


def as_problem(name):
    """Return the small network with the task of its data."""
    build, sizes, data, outputs = NETWORKS[name]
    return networks.network(build(*sizes), data(), data(), num_classes=outputs[0])


def small(generator):
    """Return a synthetic problem with default arguments, but few clients and examples."""
    few = {"num_clients": 3, "num_examples": 8}
    known = inspect.signature(generator).parameters
    return Family(generator(**{name: few[name] for name in few if name in known}), 1e-4)


def generators():
    """Return the library's factories of synthetic problems, by name."""
    for name in problems.__all__:
        factory = getattr(problems, name)
        if inspect.isfunction(factory) and typing.get_type_hints(factory)["return"] is Problem:
            parameters = inspect.signature(factory).parameters.values()
            if all(parameter.default is not parameter.empty for parameter in parameters):
                yield name, factory


# New factories are found by themselves; descent circles around the bilinear saddle point.
TABLED = {name.removeprefix("synthetic_") for name in BUILDERS} | {"bilinear", "fmri_surrogate"}
BUILDERS |= {
    name: functools.partial(small, generator)
    for name, generator in generators()
    if name.removeprefix("synthetic_") not in TABLED
}

BUILDERS |= {name: lambda name=name: Family(as_problem(name), 0.1) for name in NETWORKS}


@functools.cache
def family(name) -> Family:
    return BUILDERS[name]()


# The mean loss of a population, compiled once for each loss and shape.
mean_loss = jax.jit(population_loss, static_argnums=0)


def in_float64(tree):
    """Return floating leaves in float64, so that finite differences are accurate."""
    return jax.tree.map(
        lambda leaf: np.asarray(leaf, float) if leaf.dtype.kind == "f" else np.asarray(leaf), tree
    )
