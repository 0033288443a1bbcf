"""DeComFL: gradients along shared random directions, one number each way.

Li, Ying, Liu, Dong and Yang, "Achieving dimension-free communication in
federated learning via zeroth-order optimization", ICLR 2025 (arXiv 2405.15861),
Algorithm 1 with one local step, written from memory.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms import Algorithm, ClientResult, Known, mean_loss, takes
from fcojax.types import Positive


class Hparams(NamedTuple):
    """The step size, and the length mu of a finite difference."""

    client_lr: Positive = 0.01
    smoothing: Positive = 1e-3


class Server(NamedTuple):
    """The model, the key of the next directions, and the last step."""

    params: object
    key: object
    slopes: object


@takes(Hparams)
def de_com_fl(loss, *, num_directions: int = 10):
    """Take steps along random directions that all clients draw from one key."""
    value = mean_loss(loss)

    def directions(key, like):
        def one(key):
            leaves, structure = jax.tree.flatten(like)
            keys = jax.random.split(key, len(leaves))
            pairs = zip(keys, leaves, strict=True)
            drawn = [jax.random.normal(k, x.shape, x.dtype) for k, x in pairs]
            return jax.tree.unflatten(structure, drawn)

        key = jax.random.wrap_key_data(key)
        return jax.vmap(one)(jax.random.split(key, num_directions))

    def init(hparams, params):
        # `init` has no key: the first directions are the same in all runs.
        key = jax.random.key_data(jax.random.key(0))
        dtype = jax.tree.leaves(params)[0].dtype
        return Server(params, key, jnp.zeros(num_directions, dtype)), ()

    def broadcast(hparams, server):
        # Clients repeat the server's step from the last slopes and the key.
        return server._replace(params=()), Known(server.params)

    def client_update(hparams, message, client, local, key):
        sent, known = message
        w, batch = known.value, local.full()
        ways = directions(sent.key, w)

        def slope(way):
            ahead = value(tree.add_scaled(w, hparams.smoothing, way), batch)
            rise = ahead - value(w, batch)
            return rise / jnp.asarray(hparams.smoothing, rise.dtype)

        return ClientResult(client, jax.vmap(slope)(ways), {})

    def server_update(hparams, server, slopes, fraction, key):
        ways = directions(server.key, server.params)
        step = jax.tree.map(
            lambda way: jnp.tensordot(slopes, way, 1) / num_directions, ways
        )
        moved = tree.add_scaled(server.params, -hparams.client_lr, step)
        return Server(moved, jax.random.key_data(key), slopes)

    def model(hparams, server):
        return server.params

    return Algorithm(init, broadcast, client_update, server_update, model)
