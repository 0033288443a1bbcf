"""Networks trained by hand-written JAX: a jitted step in Python loops.

Rounds, clients and steps are loops, minibatches are taken in numpy, and every client's step is one
call of a compiled gradient step. The models are written with ``jax.lax`` alone.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.plain_jax import Params, read


def emnist_net(params: Params, x: jax.Array) -> jax.Array:
    """Return the logits of the network with two 3 x 3 convolutions, for a batch of images."""
    x = x.reshape(-1, 28, 28, 1)
    for name in ("conv_1", "conv_2"):
        layer = params[name]
        x = lax.conv_general_dilated(
            x, layer["kernel"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer["bias"])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(_dense(params["dense_1"], x.reshape(x.shape[0], -1)))
    return _dense(params["dense_2"], x)


def char_gru(params: Params, tokens: jax.Array) -> jax.Array:
    """Return the logits of the next character at every time, from a gated recurrent layer."""
    layer = params["layer_1"]
    drives = _dense(layer["input"], params["embedding"]["embedding"][tokens])

    def step(h, drive):
        r, z, n = jnp.split(drive, 3, axis=-1)
        of_r, of_z, of_n = jnp.split(_dense(layer["recurrent"], h), 3, axis=-1)
        z = jax.nn.sigmoid(z + of_z)
        h = (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + of_r) * of_n) + z * h
        return h, h

    blank = jnp.zeros((tokens.shape[0], layer["recurrent"]["kernel"].shape[0]))
    _, states = lax.scan(step, blank, drives.swapaxes(0, 1))
    return _dense(params["dense"], states.swapaxes(0, 1))


def cross_entropy(model: Callable) -> Callable[[Params, dict], jax.Array]:
    """Return ``(params, rows) -> mean loss`` of a model, over examples and any time axis."""

    def loss(params, rows):
        logits, labels = model(params, rows["x"]), rows["y"]
        picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)

    return loss


MODELS = {"emnist_net": emnist_net, "char_gru": char_gru}


def run(
    algorithm: str,
    model: str,
    rates: dict[str, float],
    params: Params,
    clients: dict[str, np.ndarray],
    members: np.ndarray,
    indices: np.ndarray,
) -> Params:
    """Run FedAvg, or FedDualAvg with an l1 penalty on kernels, at a server rate of 1.

    Args:
      algorithm: ``fed_avg`` or ``fed_dual_avg``.
      model: a key of ``MODELS``.
      rates: ``client_lr`` and ``penalty_scale``.
      params: the start.
      clients: arrays with axes [clients, examples] in front.
      members: [rounds, cohort] clients of each round.
      indices: [rounds, cohort, steps, batch] examples within each client.
    """
    dual = algorithm == "fed_dual_avg"
    scale = rates["penalty_scale"] if dual else None
    server, elapsed = params, 0.0
    for cohort, picks in zip(members, indices, strict=True):
        total = None
        for member, of_client in zip(cohort, picks, strict=True):
            z, time = server, jnp.float32(elapsed)
            for rows in of_client:
                batch = {name: leaf[member, rows] for name, leaf in clients.items()}
                z, time = _step(model, scale, rates["client_lr"], z, time, batch)
            total = z if total is None else _add(total, z)
        server = _mean(total, len(cohort))
        elapsed += picks.shape[1] * rates["client_lr"]
    return server if scale is None else jax.jit(read)(server, elapsed * scale)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _step(model, scale, lr, z, elapsed, batch):
    point = z if scale is None else read(z, elapsed * scale)
    slope = jax.grad(cross_entropy(MODELS[model]))(point, batch)
    return jax.tree.map(lambda a, g: a - lr * g, z, slope), elapsed + lr


@jax.jit
def _add(a, b):
    return jax.tree.map(jnp.add, a, b)


@jax.jit
def _mean(total, count):
    return jax.tree.map(lambda leaf: leaf / count, total)


def _dense(layer: Params, x: jax.Array) -> jax.Array:
    return x @ layer["kernel"] + layer["bias"]
