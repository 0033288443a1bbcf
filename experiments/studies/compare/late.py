"""Delayed clients: asyncFedDR, for FedDR and any algorithm whose server sends its model.

Tran-Dinh, Pham, Phan and Nguyen, "FedDR: randomized Douglas-Rachford splitting algorithms for
nonconvex federated composite optimization", NeurIPS 2021 (arXiv 2103.03452), Algorithm 2. With one
client per round, a round is one event of that algorithm, with a bounded delay.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax.algorithms import Algorithm
from fcojax.extend import memoised
from fcojax.types import PyTree


class Late(NamedTuple):
    """The server's state, its last messages, newest first, and the message that it broadcasts."""

    inner: PyTree
    past: PyTree
    message: PyTree


@memoised
def late(algorithm: Algorithm, max_delay: int) -> Algorithm:
    """Return the algorithm with clients that receive a message from up to ``max_delay`` rounds ago.

    Args:
      algorithm: its server must broadcast its model.
      max_delay: the largest delay in rounds; each round's delay is drawn uniformly from 0 up to it.
    """

    def init(hparams, params):
        inner, client = algorithm.init(hparams, params)
        message = algorithm.broadcast(hparams, inner)
        past = jax.tree.map(lambda leaf: jnp.stack([leaf] * (max_delay + 1)), message)
        return Late(inner, past, message), client

    def broadcast(hparams, server):
        return server.message

    def server_update(hparams, server, mean_upload, fraction, key):
        inner = algorithm.server_update(hparams, server.inner, mean_upload, fraction, key)
        newest = algorithm.broadcast(hparams, inner)
        past = jax.tree.map(
            lambda old, new: jnp.concatenate([new[None], old[:-1]]), server.past, newest
        )
        delay = jax.random.randint(key, (), 0, max_delay + 1)
        return Late(inner, past, jax.tree.map(lambda leaf: leaf[delay], past))

    def model(hparams, server):
        return algorithm.model(hparams, server.inner)

    return algorithm._replace(
        init=init, broadcast=broadcast, server_update=server_update, model=model
    )
