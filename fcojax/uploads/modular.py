"""Stochastic rounding to a grid, and sums modulo a power of two, for secure aggregation."""

from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from fcojax.types import Array, Numbers, Positive
from fcojax.uploads.compressor import factory
from fcojax.uploads.quantise import rounded
from fcojax.uploads.transform import Facts, Sent, UploadTransform, number

# Beyond 24 bits, sums of whole numbers are not exact in float32.
Bits = Annotated[
    int, Numbers("a whole number from 2 to 24", lambda bits: (bits >= 2) & (bits <= 24), True)
]
_WHOLE = 0.25  # how far the rounding errors of a sum may be from a whole number


@factory
def modular_sum(step: Positive | Callable[[Any], Any], bits: Bits) -> UploadTransform:
    r"""Return the transform for sums on a random grid, modulo :math:`2^b`.

    .. math:: q_i = \lfloor u_i / s + \mathrm{uniform}(0, 1) \rfloor, \qquad
              g = \frac{s}{n} \sum_i q_i, \qquad -2^{b-1} \le \sum_i q_i < 2^{b-1}.

    Each q is unbiased, with an error of at most :math:`s^2 / 4` per entry. Only the sum is needed,
    modulo :math:`2^b`, so a secure aggregation can hide the summands, which may be beyond the range
    themselves. A sum that would wrap is refused: the round changes nothing and is counted in
    ``history["refused"]``, because a server that sees only the remainder would take a wrong step.
    Whole numbers add up exactly, in any order. Clients have to have equal weights, as sums of whole
    numbers have no weights; with unequal weights every round is refused.

    Args:
      step: s; or ``hparams -> s``, to sweep it in one program.
      bits: b, the bits of a transmitted entry.

    Example:
      >>> up_to_thirty_two = modular_sum(1e-3, bits=16)

    References:
      Bonawitz, Salehi, Konecny, McMahan and Gruteser, "Federated learning with autotuned
      communication-efficient secure aggregation", Asilomar 2019.
    """
    half = 2 ** (bits - 1)

    def send(at, payload, state):
        size = number(at.hparams, step)
        codes = [
            rounded(_checked(x) / jnp.asarray(size, x.dtype), jax.random.fold_in(at.key, index))
            for index, x in enumerate(payload)
        ]
        return Sent(codes, num_bytes=sum(-(-leaf.size * bits // 8) for leaf in codes))

    def receive(at, found, weights, state):
        count, size = jnp.maximum(weights.count, 1), number(at.hparams, step)
        share = jnp.where(weights.share > 0, weights.share, 1)
        means, sound = [], jnp.asarray(True)
        for leaf in found.mean:
            own = count.astype(leaf.dtype)
            summed = leaf * own / share.astype(leaf.dtype)
            whole = jnp.round(summed)
            inside = (jnp.abs(summed - whole) <= _WHOLE) & (whole >= -half) & (whole < half)
            sound = sound & jnp.all(inside)
            means.append(whole * jnp.asarray(size, leaf.dtype) / own)
        means = [jnp.where(sound, leaf, jnp.nan) for leaf in means]
        return found._replace(mean=means), state

    name, facts = f"modular_sum({step}, {bits})", Facts(needs_sum=True)
    return UploadTransform(
        name, send=send, decode=lambda at, wire, state: wire, receive=receive, facts=facts
    )


def _checked(leaf: Array) -> Array:
    if not jnp.issubdtype(leaf.dtype, jnp.floating) or leaf.dtype.itemsize < 4:
        raise ValueError(
            f"an upload has a leaf of {leaf.dtype}, whose sums are not exact on a grid; wrap it in "
            "fcojax.algorithms.Public, or upload floats of 32 or 64 bits."
        )
    return leaf
