"""What happens to uploads on their way from the clients to the server's mean.

An uplink encodes what a client sends, decodes it before the mean is taken, and finishes the sum.
Compression with error feedback, clipping with noise and fixed denominators are uplinks; algorithms
never hear of them. Parts of an upload that are wrapped in ``Public`` pass by.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Public
from fcojax.types import Array, Key, PyTree


class Heard(NamedTuple):
    """Who was heard in a round, for an uplink that divides a sum its own way.

    Attributes:
      share: the weight of the clients heard, as a share of the cohort's; 0 if nobody was.
      cohort_weight: the sum of the weights p_m over the cohort, heard or not.
      population_weight: the same over all clients.
      count: how many clients were heard.
    """

    share: Array
    cohort_weight: Array
    population_weight: Array
    count: Array


def plain_mean(hparams: Any, total: PyTree, heard: Heard, key: Key) -> PyTree:
    """The mean over those who were heard."""
    del hparams, key
    return tree.scale(1 / jnp.where(heard.share > 0, heard.share, 1), total)


class Uplink(NamedTuple):
    """An encoding of uploads; all functions are pure, and numbers come in as ``hparams``.

    Attributes:
      init: ``(payload) -> residual``: what one client keeps for its own encoder, given zeros in the
        shape of what it sends. As with a client's state, it is taken back if an upload is lost.
      encode: ``(hparams, payload, residual, key) -> (encoded, residual)`` for one client. The bytes
        of ``encoded`` are what the upload costs.
      decode: ``(encoded) -> payload``, before the mean.
      finish: ``(hparams, total, heard, key) -> mean``, with ``total`` the sum of decoded payloads,
        each times its client's share of the cohort's weight.
      steps_when_empty: whether the server steps in rounds in which nobody was heard, on what
        ``finish`` makes of nothing; noise that must not tell whether anybody was there.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> def cast_to(dtype):
      ...     return lambda payload: jax.tree.map(lambda leaf: leaf.astype(dtype), payload)
      >>> halves = fcojax.Uplink(
      ...     init=lambda payload: (),
      ...     encode=lambda hparams, payload, kept, key: (cast_to(jnp.float16)(payload), kept),
      ...     decode=cast_to(jnp.float32))
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uplink=halves)
      >>> encoded, _ = halves.encode(None, [jnp.array([1.0, 2.0, 3.0])], (), None)
      >>> encoded[0].nbytes
      6
    """

    init: Callable[[PyTree], PyTree]
    encode: Callable[[Any, PyTree, PyTree, Key], tuple[PyTree, PyTree]]
    decode: Callable[[PyTree], PyTree]
    finish: Callable[[Any, PyTree, Heard, Key], PyTree] = plain_mean
    steps_when_empty: bool = False


def split(upload: PyTree) -> tuple[list, list, Callable[[list, list], PyTree]]:
    """The private and the public parts of an upload, and what puts them together again."""
    parts, structure = jax.tree.flatten(upload, is_leaf=_is_public)
    public = [_is_public(part) for part in parts]

    def join(private: list, shared: list) -> PyTree:
        sources = {False: iter(private), True: iter(shared)}
        return jax.tree.unflatten(structure, [next(sources[kind]) for kind in public])

    return (
        [part for part, kind in zip(parts, public, strict=True) if not kind],
        [part for part, kind in zip(parts, public, strict=True) if kind],
        join,
    )


def _is_public(part: Any) -> bool:
    return isinstance(part, Public)
