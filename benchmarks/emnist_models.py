"""The EMNIST CNN in each library, without layers of fcojax.

Each function takes the parameters of ``emnist_cnn.start`` and returns them in the form of its
library, with ``(params, images) -> logits``.
"""

import importlib
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks import plain_loop
from fcojax import networks

Model = tuple[dict, Callable]
_ORDER = ("conv_1", "conv_2", "dense_1", "dense_2")


def emnist_net(params: dict) -> Model:
    """Return the network of the library."""
    image = jax.ShapeDtypeStruct((1, 28, 28, 1), jnp.float32)
    functions = networks.functions_of(networks.emnist_net(dropout_rates=(0.0, 0.0)), image, (1, 62))
    return params, lambda params, x: functions.apply(params, x, None)


def plain_jax(params: dict) -> Model:
    """Return the network in plain ``jax.lax``."""
    return params, plain_loop.emnist_net


class _Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(32, (3, 3), padding="VALID")(x))
        x = nn.relu(nn.Conv(64, (3, 3), padding="VALID")(x))
        x = nn.max_pool(x, (2, 2), (2, 2)).reshape(len(x), -1)
        x = nn.relu(nn.Dense(128)(x))
        return nn.Dense(62)(x)


def linen(params: dict) -> Model:
    """Return the network in Flax Linen."""
    names = ("Conv_0", "Conv_1", "Dense_0", "Dense_1")
    own = {name: params[ours] for name, ours in zip(names, _ORDER, strict=True)}
    return {"params": own}, _Linen().apply


class _Nnx(nnx.Module):
    def __init__(self, rngs):
        self.conv_1 = nnx.Conv(1, 32, (3, 3), padding="VALID", rngs=rngs)
        self.conv_2 = nnx.Conv(32, 64, (3, 3), padding="VALID", rngs=rngs)
        self.dense_1 = nnx.Linear(12 * 12 * 64, 128, rngs=rngs)
        self.dense_2 = nnx.Linear(128, 62, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.conv_2(nnx.relu(self.conv_1(x))))
        x = nnx.max_pool(x, (2, 2), (2, 2)).reshape(len(x), -1)
        return self.dense_2(nnx.relu(self.dense_1(x)))


def of_nnx(params: dict) -> Model:
    """Return the network in Flax NNX."""
    graph, _ = nnx.split(nnx.eval_shape(lambda: _Nnx(nnx.Rngs(0))))
    return params, lambda params, x: nnx.merge(graph, params)(x)


def haiku(params: dict) -> Model:
    """Return the network in Haiku."""
    hk = importlib.import_module("haiku")

    def forward(x):
        x = jax.nn.relu(hk.Conv2D(32, 3, padding="VALID")(x))
        x = jax.nn.relu(hk.Conv2D(64, 3, padding="VALID")(x))
        x = hk.Flatten()(hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")(x))
        x = jax.nn.relu(hk.Linear(128)(x))
        return hk.Linear(62)(x)

    names = ("conv2_d", "conv2_d_1", "linear", "linear_1")
    own = {
        name: {"w": params[ours]["kernel"], "b": params[ours]["bias"]}
        for name, ours in zip(names, _ORDER, strict=True)
    }
    return own, hk.without_apply_rng(hk.transform(forward)).apply


def equinox(params: dict) -> Model:
    """Return the network in Equinox, for one example with axes [channels, height, width]."""
    eqx = importlib.import_module("equinox")
    keys = jax.random.split(jax.random.key(0), 4)
    blank = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(1, 32, 3, key=keys[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Conv2d(32, 64, 3, key=keys[1]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(12 * 12 * 64, 128, key=keys[2]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Linear(128, 62, key=keys[3]),
        ]
    )
    own, static = eqx.partition(blank, eqx.is_inexact_array)
    kernels = [params[name]["kernel"] for name in _ORDER]
    biases = [params[name]["bias"] for name in _ORDER]
    by_channel = kernels[2].reshape(12, 12, 64, 128).transpose(3, 2, 0, 1).reshape(128, -1)
    leaves = [
        kernels[0].transpose(3, 2, 0, 1),
        biases[0][:, None, None],
        kernels[1].transpose(3, 2, 0, 1),
        biases[1][:, None, None],
        by_channel,
        biases[2],
        kernels[3].T,
        biases[3],
    ]
    own = jax.tree.unflatten(jax.tree.structure(own), map(np.ascontiguousarray, leaves))

    def apply(params, x):
        return jax.vmap(eqx.combine(params, static))(jnp.moveaxis(x, -1, 1))

    return own, apply


MODELS: dict[str, Callable[[dict], Model]] = {
    "emnist_net": emnist_net,
    "linen": linen,
    "nnx": of_nnx,
    "haiku": haiku,
    "equinox": equinox,
    "plain_jax": plain_jax,
}
