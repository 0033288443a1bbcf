"""Transforms about who is counted: losses, bounds, and weights for clients seldom there."""

from typing import Literal

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.types import Positive, Probability
from fcojax.uploads.transform import NOTHING, Facts, Opened, Sent, UploadTransform


@factory
def dropout(probability: Probability) -> UploadTransform:
    """Return the transform that loses uploads at random; the last of a chain.

    A client whose upload is lost keeps the state that it had before the round. Losses are
    independent over clients and rounds and are counted in ``history["lost"]``.

    Args:
      probability: the probability that an upload is lost.

    Example:
      >>> import fcojax
      >>> plan = fcojax.Plan(fcojax.local_steps(10), uploads=fcojax.dropout(0.3))
    """
    if not probability:
        return NOTHING

    def send(at, payload, state):
        return Sent(payload, state, jax.random.bernoulli(at.key, 1 - probability))

    facts = Facts(leaves_out="lost", arrives=lambda client: 1 - probability)
    return UploadTransform(f"dropout({probability})", send=send, facts=facts)


@factory
def norm_bound(bound: Positive) -> UploadTransform:
    """Return the transform that leaves out clients whose upload has a norm above a bound.

    The norm is taken of the decoded upload without its ``Public`` parts. A client that is left out
    keeps the state that it had before the round, and is counted in ``history["left_out"]``.

    Args:
      bound: the largest Euclidean norm of an upload that counts.

    Example:
      >>> bound = norm_bound(10.0)
      >>> [bool(bound.open(None, [jnp.array(a)], (), ()).weight) for a in (2.0, 1e6)]
      [True, False]
    """

    def open_(at, payload, client_state, server_state):
        norm = tree.norm(payload)
        return Opened(payload, norm <= jnp.asarray(bound, norm.dtype))

    return UploadTransform(
        f"norm_bound({bound})",
        open=open_,
        bound=lambda hparams, norm: jnp.minimum(norm, bound),
        facts=Facts(leaves_out="left_out"),
    )


@factory
def inverse_probability(kind: Literal["known", "estimated"]) -> UploadTransform:
    r"""Return the transform that gives clients that are seldom there larger weights.

    .. math:: g = \frac{1}{\sum_m p_m} \sum_{m \text{ counted}} \frac{p_m}{q_m} u_m

    with q_m the probability that client m is counted, so that the result estimates the mean over
    all clients. ``Public`` parts get the same weights. Algorithms whose server step depends on
    ``fraction`` are refused.

    Args:
      kind: ``"known"`` takes q_m from the sampler and the losses of the chain; ``"estimated"``
        takes the share of rounds so far in which the client was counted.

    Example:
      >>> import fcojax
      >>> corrected = inverse_probability("known")
      >>> plan = fcojax.Plan(fcojax.local_steps(1), fcojax.coin_flips([0.9, 0.1]), corrected)
    """

    def init(payload):
        return jnp.zeros((), jnp.int32) if kind == "estimated" else (), ()

    def send(at, payload, rounds):
        return Sent(payload, rounds + 1 if kind == "estimated" else ())

    def open_(at, payload, rounds, server_state):
        if kind == "known":
            share = at.inclusion()
        else:
            # With this round the share is above zero, and in the first round it is one.
            number = jnp.result_type(float)
            share = (rounds + 1).astype(number) / (at.round + 1).astype(number)
        # Clients that are never counted have q_m = 0; an infinite weight would make others zero.
        return Opened(payload, 1 / jnp.where(share > 0, share, 1))

    def receive(at, found, weights, server_state):
        # Also public parts, so that the elapsed time of dual averaging keeps to its dual points.
        mean = tree.scale(weights.cohort_weight / weights.population_weight, found.mean)
        public = tree.scale(found.fraction, found.public)
        return found._replace(mean=mean, public=public), server_state

    facts = Facts(estimates_all=True, needs_sum=True)
    name = f"inverse_probability({kind!r})"
    return UploadTransform(name, init, send, open=open_, receive=receive, facts=facts)
