r"""Compressed broadcasts: the server sends corrections of the clients' estimate of the message.

.. math:: \hat m \leftarrow \hat m + C(m - \hat m)

for the message m that the algorithm would send. Server and clients hold the same :math:`\hat m`, so
only the compressed correction is sent; the fixed points are the same as without compression, with
:math:`\hat m = m`. A message that grows forever, as the dual of ``fed_dual_avg`` with a penalty,
has no fixed point: the estimate lags some rounds behind, and the limit is wrong.

Gruntkowska, Tyurin and Richtarik, "EF21-P and friends: improved theoretical communication
complexity for distributed optimization with bidirectional compression", ICML 2023.
"""

import jax
import jax.numpy as jnp

from fcojax.engine.broadcast import Broadcast
from fcojax.uploads import coding
from fcojax.uploads.compressor import Compressor, factory, require_contractive


@factory
def ef21p(compressor: Compressor) -> Broadcast:
    """Return the broadcast of compressed corrections of the message, for ``Plan(broadcast=...)``.

    All clients receive them in every round, absent ones too; ``history["bytes_down"]`` counts that.
    Single numbers, such as the elapsed time of dual averaging, and integers are sent uncompressed.
    Clients know the first message.

    Args:
      compressor: a contractive compressor with a fixed strength, such as ``uploads.top_k(0.1)``.

    Example:
      >>> from fcojax import uploads
      >>> sender, estimate, message = ef21p(uploads.top_k(1)), jnp.zeros(2), jnp.array([3.0, 1.0])
      >>> for key in jax.random.split(jax.random.key(0)):
      ...     estimate, sent = sender.corrected(None, estimate, message, key)
      ...     print(estimate.tolist())
      [3.0, 0.0]
      [3.0, 1.0]
    """
    require_contractive(compressor)
    if compressor.num_bytes is not None:
        raise ValueError(
            f"compressor is {compressor.name}, whose size depends on the hyperparameters; pass one "
            "of a fixed strength, such as uploads.top_k(0.1)."
        )

    def corrected(hparams, estimate, message, key):
        """Return the new estimate, and the correction that is sent."""
        olds, structure = jax.tree.flatten(estimate)
        news = jax.tree.leaves(message)
        floats = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in news]
        long = [index for index, leaf in enumerate(news) if leaf.size > 1 and floats[index]]
        change = [news[index] - olds[index] for index in long]
        encoded = coding.encode(compressor, hparams, change, key)
        leaves = list(news)
        for index, part in zip(long, coding.decode(compressor, encoded), strict=True):
            leaves[index] = olds[index] + part
        short = [leaf for index, leaf in enumerate(news) if index not in long]
        return jax.tree.unflatten(structure, leaves), (encoded.sent, encoded.whole, short)

    return Broadcast(f"ef21p({compressor.name})", corrected)
