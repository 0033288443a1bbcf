"""Flax modules as functions: custom modules, with dropout, or with refused state."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import errors, linen, nnx

import fcojax
from fcojax.algorithms import mean_gradient
from fcojax.algorithms.local import Batch
from fcojax.networks import Functions, functions_of, loss_of, network
from fcojax.problems import RandomLoss, population_loss
from tests.problems.families import images

NUM_CLIENTS, NUM_UNITS = 3, 64


class LinenMasks(linen.Module):
    """A module with dropout of half of its weights, and an argument ``deterministic``."""

    @linen.compact
    def __call__(self, x, deterministic):
        own = linen.Dense(NUM_UNITS, use_bias=False)(x)
        return linen.Dropout(0.5, deterministic=deterministic)(own)


class LinenTrain(linen.Module):
    """The same module with an argument ``train``."""

    @linen.compact
    def __call__(self, x, train):
        own = linen.Dense(NUM_UNITS, use_bias=False)(x)
        return linen.Dropout(0.5)(own, deterministic=not train)


class NnxMasks(nnx.Module):
    """The same module in NNX, with dropout by its mode."""

    def __init__(self, rngs):
        self.dense = nnx.Linear(NUM_CLIENTS, NUM_UNITS, use_bias=False, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.dense(x))


MASKS = {"deterministic": LinenMasks(), "train": LinenTrain(), "nnx": lambda rngs: NnxMasks(rngs)}


@functools.cache
def masked(kind):
    """Return a loss whose gradient is the dropout mask, for clients with one example each."""
    x = jax.ShapeDtypeStruct((1, NUM_CLIENTS), jnp.float32)
    functions = functions_of(MASKS[kind], x, (1, NUM_UNITS))
    return loss_of(functions, lambda outputs, rows: jnp.sum(outputs, axis=1)), functions


def clients():
    return fcojax.from_rows({"x": np.eye(NUM_CLIENTS, dtype=np.float32)}, [1] * NUM_CLIENTS)


@pytest.mark.parametrize("kind", MASKS)
def test_dropout_is_off_in_evaluation(kind):
    loss, functions = masked(kind)
    assert isinstance(loss, RandomLoss) and functions.draws
    params = functions.init(jax.random.key(0))
    (kernel,) = jax.tree.leaves(params)
    expected = np.asarray(kernel).sum(axis=1)
    np.testing.assert_allclose(loss(params, clients().examples), expected, rtol=1e-5, atol=1e-6)
    found = population_loss(loss, params, clients())
    np.testing.assert_allclose(found, expected.mean(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", MASKS)
def test_the_same_key_drops_the_same_and_another_one_others(kind):
    loss, functions = masked(kind)
    slope = jax.jit(mean_gradient(loss))
    params = functions.init(jax.random.key(0))

    def drawn(step, key=0):
        batch = Batch(clients().examples, jnp.ones(NUM_CLIENTS), jax.random.key(key), step)
        return np.asarray(jax.tree.leaves(slope(params, batch))[0])

    np.testing.assert_array_equal(drawn(jnp.int32(3)), drawn(jnp.int32(3)))
    assert (drawn(jnp.int32(3)) != drawn(jnp.int32(4))).any()
    assert (drawn(jnp.int32(3)) != drawn(jnp.int32(3), key=1)).any()


class LinenNormed(linen.Module):
    @linen.compact
    def __call__(self, x, train):
        return linen.BatchNorm(use_running_average=not train)(linen.Dense(3)(x))


class LinenCounting(linen.Module):
    @linen.compact
    def __call__(self, x):
        self.variable("counts", "calls", lambda: jnp.zeros(()))
        return linen.Dense(3)(x)


def affine(params, x, key):
    del key
    return x @ params["kernel"] + params["bias"][None]


class AlwaysDropping(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dropout(0.5, deterministic=False)(linen.Dense(3)(x))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LinenNormed(), "use GroupNorm or LayerNorm"),
        (LinenCounting(), "counts.calls"),
        (AlwaysDropping(), "needs PRNG"),
    ],
)
def test_modules_that_no_round_can_keep_are_refused(model, message):
    with pytest.raises((ValueError, errors.InvalidRngError), match=message):
        network(model, images(), num_classes=3)


def test_a_model_of_ones_own_draws_in_training_if_it_says_so():
    def apply(params, x, key):
        kept = 1.0 if key is None else jax.random.bernoulli(key, 0.5, x.shape).astype(x.dtype)
        return affine(params, x * kept, None)

    init = network(linen.Dense(3), images(), num_classes=3).init
    problem = network(Functions(init, apply, draws=True), images(), num_classes=3)
    params, rows = init(jax.random.key(0)), images().examples
    assert isinstance(problem.loss, RandomLoss)
    off, one, other = (
        problem.loss(params, rows, key) for key in (None, jax.random.key(0), jax.random.key(1))
    )
    expected = network(linen.Dense(3), images(), num_classes=3).loss(params, rows)
    np.testing.assert_allclose(off, expected, rtol=1e-6)
    assert (one != other).any()
