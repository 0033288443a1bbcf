"""Networks from Flax as plain dicts of arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fcojax.problems.networks import conv_net, dense_kernels, network, two_layer
from fcojax.transforms import l1_ball, on_subtree, per_leaf
from tests.problems.families import family, images


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


def test_the_published_sizes():
    """784-200-200-10 and conv 32, conv 64, 512, 10 on images of 28 x 28."""
    shapes = {}
    for name, build in (("two_layer", two_layer()), ("conv_net", conv_net())):
        data = images(1, 1, (28, 28), 10)
        init = network(build, data, num_classes=10).init
        params = jax.eval_shape(init, jax.random.key(0))
        shapes[name] = {layer: leaves["kernel"].shape for layer, leaves in params.items()}
    assert shapes["two_layer"] == {
        "dense_1": (784, 200), "dense_2": (200, 200), "dense_3": (200, 10),
    }  # fmt: skip
    assert shapes["conv_net"] == {
        "conv_1": (5, 5, 1, 32), "conv_2": (5, 5, 32, 64),
        "dense_1": (7 * 7 * 64, 512), "dense_2": (512, 10),
    }  # fmt: skip


def test_start_points_are_glorot_uniform_and_differ():
    problem = family("two_layer").problem
    points = jax.jit(jax.vmap(problem.init))(jax.random.split(jax.random.key(0), 200))
    kernel = np.asarray(points["dense_1"]["kernel"])
    limit = (6 / (16 + 5)) ** 0.5
    assert np.abs(kernel).max() <= limit
    assert kernel.std() == pytest.approx(limit / 3**0.5, rel=0.02)
    assert not points["dense_1"]["bias"].any()


def test_constraints_take_each_dense_kernel_and_nothing_else():
    params = family("conv_net").problem.init(jax.random.key(0))
    params = jax.tree.map(lambda leaf: leaf + 1, params)
    ball = on_subtree(per_leaf(l1_ball()), dense_kernels)
    inside = ball.prox(params, 1.0, 2.0)
    for layer in params:
        for part, leaf in params[layer].items():
            if layer.startswith("dense") and part == "kernel":
                assert jnp.sum(jnp.abs(inside[layer][part])) == pytest.approx(2.0, rel=1e-5)
            else:
                np.testing.assert_array_equal(inside[layer][part], leaf)


def test_density_is_that_of_the_dense_kernels():
    problem = family("conv_net").problem
    params = jax.tree.map(jnp.zeros_like, problem.init(jax.random.key(0)))
    params["dense_2"]["kernel"] += 1
    params["conv_1"]["kernel"] += 1
    assert problem.measures(params)["density"] == pytest.approx(
        15 / (10 + 15) if False else 15 / 30
    )


class Dropping(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(16, 3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.drop(self.dense(x))


@pytest.mark.parametrize(
    ("build", "num_classes", "message"),
    [
        (Dropping, 3, "state beyond its parameters"),
        (two_layer(16, 5, 4), 3, r"gives \(1, 4\) .* num_classes = 3"),
        (two_layer(16, 5, 2), 2, "label 2 in row"),
    ],
)
def test_models_that_do_not_fit_are_refused(build, num_classes, message):
    with pytest.raises(ValueError, match=message) as error:
        network(build, images(), num_classes=num_classes)
    assert "\n" not in str(error.value)
