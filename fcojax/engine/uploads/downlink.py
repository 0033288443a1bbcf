"""Compressed broadcasts: the mean upload is encoded once more, and clients take the server's step.

All of the server's step but the mean upload is known to the clients: the start point, the
hyperparameters and the key. So it is enough to broadcast the mean, encoded; server and clients then
take the same step from what is decoded, and hold the same server state.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.engine.uploads.collect import WEIGHTED_SUM
from fcojax.engine.uploads.uplink import Uplink, as_given, plain_mean, unchanged
from fcojax.types import Array, Key, PyTree


class Memories(NamedTuple):
    """What is kept with a downlink.

    Attributes:
      uplink: what the uplink keeps on the server.
      encoder: the residual of the server, which encodes the mean.
      decoder: what the clients and the server keep of the broadcasts.
    """

    uplink: PyTree
    encoder: PyTree
    decoder: PyTree


def first_memories(downlink: Uplink, hparams: PyTree, memory: PyTree, zeros: list) -> Memories:
    """Return what is kept before the first round; raise ``ValueError`` if it is no downlink.

    Args:
      downlink: the downlink.
      hparams: the hyperparameters.
      memory: what the uplink keeps.
      zeros: a payload of zeros.
    """
    plain = downlink.finish is plain_mean and downlink.receive is unchanged
    plain = plain and downlink.collector is WEIGHTED_SUM and downlink.of_round is as_given
    if not plain or downlink.limit is not None:
        raise ValueError(
            "the downlink is an uplink that looks at the clients' uploads, tosses a coin for them "
            "or adds noise to their sum, and there is one mean; pass one that only encodes, such "
            "as uploads.ef21(...)."
        )
    residual = downlink.init(zeros)
    jax.eval_shape(downlink.encode, hparams, zeros, residual, jax.random.key(0))
    return Memories(memory, residual, downlink.memory(zeros))


def through(
    downlink: Uplink, hparams: PyTree, mean: list, memories: Memories, key: Key, fraction: Array
) -> tuple[list, Memories]:
    """Return the mean as it is decoded, and what is kept, from the mean of the uploads.

    The server adds ``fraction * mean``, so the residual is stored multiplied by the fraction of its
    round. An encoder that keeps an estimate of the mean keeps one of the mean itself.
    """
    adds = downlink.feeds_back and not downlink.of_population
    share = jnp.where(fraction > 0, fraction, 1) if adds else 1.0
    residual = tree.scale(1 / share, memories.encoder) if adds else memories.encoder
    encoded, encoder = downlink.encode(hparams, mean, residual, key)
    encoder = tree.scale(share, encoder) if adds else encoder
    decoded, decoder = downlink.recall(
        hparams, downlink.decode(encoded), memories.decoder, jnp.ones_like(fraction)
    )
    return decoded, Memories(memories.uplink, encoder, decoder)


def num_bytes(downlink: Uplink, hparams: PyTree, payload: list, public: Any, key: Key) -> Any:
    """Return the bytes of one broadcast: the mean, its public parts, and the fraction.

    Args:
      downlink: the downlink.
      hparams: the hyperparameters.
      payload: shapes of the payload.
      public: shapes of the public parts.
      key: any key.
    """

    def encode(payload):
        return downlink.encode(hparams, payload, downlink.init(tree.zeros_like(payload)), key)[0]

    fraction = jax.ShapeDtypeStruct((), jnp.result_type(float))
    sent = downlink.num_bytes(hparams, jax.eval_shape(encode, payload))
    return sent + tree.num_bytes((public, fraction))
