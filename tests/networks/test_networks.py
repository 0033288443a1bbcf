"""Flax networks as dicts of arrays: each against a formula, and properties of all networks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import networks
from fcojax.networks import conv_net, dense_kernels, functions_of, loss_of, two_layer
from fcojax.transforms import l1_ball, on_subtree, per_leaf
from tests.problems.families import NETWORKS as OF_IMAGES
from tests.problems.families import family, images


def tokens():
    rng = np.random.default_rng(0)
    return fcojax.from_rows({"x": rng.integers(1, 5, size=(12, 6), dtype=np.int32)}, [4, 4, 4])


NETWORKS = OF_IMAGES | {"char_gru": (networks.char_gru, (5, 3, 4), tokens, (6, 5))}


def small(name, **options):
    """The functions of a small network of this kind, and its inputs."""
    build, sizes, data, outputs = NETWORKS[name]
    x = np.asarray(data().examples["x"])[:3]
    return functions_of(build(*sizes, **options), x[:1], (1, *outputs)), x


@functools.cache
def evaluated(name):
    """``(params, x) -> outputs``, compiled, with params away from the start, and inputs."""
    made, x = small(name)
    rng = np.random.default_rng(0)
    start = jax.eval_shape(made.init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: rng.normal(0, 0.5, leaf.shape).astype(np.float32), start)
    apply = jax.jit(lambda params, x: made.apply(params, x, None))
    return lambda params, x: np.asarray(apply(params, x)), params, x


def test_two_layers_by_hand():
    problem = family("two_layer").problem
    params = problem.init(jax.random.key(0))
    rows = images().examples
    hidden = np.asarray(rows["x"], float)
    for name in ("dense_1", "dense_2", "dense_3"):
        layer = {part: np.asarray(leaf, float) for part, leaf in params[name].items()}
        hidden = np.maximum(hidden, 0) @ layer["kernel"] + layer["bias"]
    shares = np.exp(hidden) / np.exp(hidden).sum(axis=1, keepdims=True)
    expected = -np.log(shares[np.arange(12), rows["y"]])
    np.testing.assert_allclose(problem.loss(params, rows), expected, rtol=1e-5)
    accuracy = (hidden.argmax(axis=1) == np.asarray(rows["y"])).mean()
    assert problem.measures(params)["accuracy"] == pytest.approx(accuracy)


@pytest.mark.parametrize(
    ("build", "shape", "dtype", "outputs", "num_params"),
    [
        (two_layer(), (784,), np.float32, (10,), 199_210),
        (conv_net(), (784,), np.float32, (10,), 1_663_370),
        (conv_net(num_hidden=2048, num_classes=62), (784,), np.float32, (62,), 6_603_710),
        (
            conv_net((32, 32, 3), (64, 64), (384, 192), padding="VALID"),
            (32, 32, 3),
            np.float32,
            (10,),
            797_962,
        ),
        (networks.emnist_net(), (28, 28), np.float32, (62,), 1_206_590),
        # 90 x 8 embedded; (8 + 256) x 768 and two biases; 256 x 90 and a bias.
        (networks.char_gru(), (80,), np.int32, (80, 90), 720 + 202_752 + 1_536 + 23_130),
    ],
)
def test_published_numbers_of_parameters(build, shape, dtype, outputs, num_params):
    x = jax.ShapeDtypeStruct((1, *shape), dtype)
    init = functions_of(build, x, (1, *outputs)).init
    params = jax.eval_shape(init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == num_params
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_of_an_example_do_not_depend_on_the_batch(name):
    """The mask over padding relies on this."""
    apply, params, x = evaluated(name)
    before, after = apply(params, x), apply(params, x[[2, 1, 1]])
    np.testing.assert_allclose(before[1], after[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(before[2], after[0], rtol=1e-4, atol=1e-5)
    assert np.abs(before[0] - before[1]).max() > 1e-3


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru_by_hand(layer, x):
    w, b = layer["input"]["kernel"], layer["input"]["bias"]
    u, v = layer["recurrent"]["kernel"], layer["recurrent"]["bias"]
    h = np.zeros((len(x), u.shape[0]))
    for t in range(x.shape[1]):
        r, z, n = np.split(x[:, t] @ w + b, 3, axis=1)
        to_r, to_z, to_n = np.split(h @ u + v, 3, axis=1)
        z = sigmoid(z + to_z)
        h = (1 - z) * np.tanh(n + sigmoid(r + to_r) * to_n) + z * h
        yield h


def test_recurrent_layers_by_hand():
    apply, params, tokens = evaluated("char_gru")
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, float), params)
    x = exact["embedding"]["embedding"][np.asarray(tokens)]
    for layer in sorted(part for part in exact if part.startswith("layer")):
        x = np.stack(list(gru_by_hand(exact[layer], x)), axis=1)
    expected = x @ exact["dense"]["kernel"] + exact["dense"]["bias"]
    np.testing.assert_allclose(apply(params, tokens), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_bfloat16_is_the_dtype_of_computation_only(name):
    with jax.numpy_dtype_promotion("standard"):  # on which Flax relies here
        made, x = small(name, dtype=jnp.bfloat16)
        loss = loss_of(made, lambda outputs, rows: outputs.reshape(len(x), -1).sum(axis=1))
        rows = {"x": x}
        start = jax.eval_shape(made.init, jax.random.key(0))
        computed = jax.eval_shape(lambda p: made.apply(p, x, None), start)
        losses = jax.eval_shape(loss, start, rows)
        slope = jax.eval_shape(jax.grad(lambda p: jnp.sum(loss(p, rows))), start)
    assert computed.dtype == jnp.bfloat16
    kept = {leaf.dtype for leaf in jax.tree.leaves((start, slope, losses))}
    assert kept == {jnp.dtype(jnp.float32)}


def test_constraints_take_each_dense_kernel_and_nothing_else():
    params = jax.tree.map(lambda leaf: leaf + 1, evaluated("conv_net")[1])
    ball = on_subtree(per_leaf(l1_ball()), dense_kernels)
    inside = ball.prox(params, 1.0, 2.0)
    for layer in params:
        for part, leaf in params[layer].items():
            if layer.startswith("dense") and part == "kernel":
                assert jnp.sum(jnp.abs(inside[layer][part])) == pytest.approx(2.0, rel=1e-5)
            else:
                np.testing.assert_array_equal(inside[layer][part], leaf)
