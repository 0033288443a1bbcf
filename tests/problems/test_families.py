"""Properties of every problem: its measures, its precision, its seed, and a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax.problems import population_loss
from fcojax.transforms import euclidean, zero
from tests.problems.families import BUILDERS, NETWORKS, family

# Compiling a run takes seconds; the default suite runs one of each kind of params and constraint.
QUICK = ("least_squares", "pca", "two_layer")
SLOW = [name for name in NETWORKS if name not in QUICK]


def start(name):
    return family(name).problem.init(jax.random.key(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_two_rounds_descend_in_float32(name):
    problem, client_lr, constraint = family(name)
    algorithm = fcojax.algorithms.fed_mid(problem.loss, euclidean(constraint or zero()))
    hparams = fcojax.algorithms.fed_mid.Hparams(client_lr=client_lr, penalty_scale=1.0)
    given = algorithm, hparams, start(name), problem.train, jax.random.key(0)
    options = {
        "observe": lambda hparams, w, train: {"loss": population_loss(problem.loss, w, train)},
        "context": problem.train,
    }
    model, history = fcojax.run(*given, fcojax.local_steps(2), num_rounds=2, **options)
    assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {jnp.dtype("float32")}
    losses = problem.loss(model, problem.train.examples)
    assert losses.dtype == jnp.float32
    assert losses.shape == (int(problem.train.offsets[-1]),)
    before = population_loss(problem.loss, start(name), problem.train)
    assert history["loss"][1] < history["loss"][0] < before


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in BUILDERS],
)
def test_measures_are_finite_scalars(name):
    measures = jax.jit(family(name).problem.measures)(start(name))
    assert measures
    for measure, value in measures.items():
        assert value.shape == () and np.isfinite(value), measure


@pytest.mark.parametrize("name", BUILDERS)
def test_data_are_float32_and_the_same_for_the_same_seed(name):
    problem, again = family(name).problem, BUILDERS[name]().problem
    for data, same in ((problem.train, again.train), (problem.validation, again.validation)):
        if data is not None:
            jax.tree.map(np.testing.assert_array_equal, data.examples, same.examples)
            dtypes = {leaf.dtype.name for leaf in jax.tree.leaves(data.examples)}
            assert dtypes <= {"float32", "int32"}
