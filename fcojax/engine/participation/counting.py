"""How often each client has been counted: a number in its row, beside the codec's residual.

A codec that counts its own uploads needs no special case elsewhere: like every residual, the number
is kept if an upload is lost, lies on the client's device, and is saved and resumed.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax.engine.aggregator import Codec
from fcojax.engine.plan import Plan
from fcojax.types import Array, PyTree


class Counted(NamedTuple):
    """The residual of a codec, and the number of rounds in which the client was counted."""

    residual: PyTree
    rounds: Array


def codec_of(plan: Plan) -> Codec | None:
    """Return the plan's codec, which counts uploads if the plan estimates frequencies."""
    codec = plan.codec
    if plan.correct != "estimated":
        return codec
    if codec is None:
        codec = Codec(lambda payload: (), lambda hparams, payload, *_: (payload, ()), lambda x: x)

    def init(payload):
        return Counted(codec.init(payload), jnp.zeros((), jnp.int32))

    def encode(hparams, payload, counted, client_key, round_key):
        encoded, residual = codec.encode(hparams, payload, counted.residual, client_key, round_key)
        return encoded, Counted(residual, counted.rounds + 1)

    return codec._replace(init=init, encode=encode)


def frequency(counted: Counted, rows: Array, round_index: Array) -> Array:
    """Return the share of rounds in which these clients were counted, this round included."""
    # With this round the share is above zero, and in the first round it is one.
    number = jnp.result_type(float)
    return (counted.rounds[rows] + 1).astype(number) / (round_index + 1).astype(number)
