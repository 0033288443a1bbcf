"""Attacks on a mean of uploads: bad clients that send harmful uploads, to test robust means.

``attacked`` is a transform of uploads. Some attacks use the honest uploads of all clients of the
round; for these ``seeing_all`` wraps the aggregator too.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import Aggregator, tree
from fcojax.arguments import factory, validated
from fcojax.robust.rules import as_points
from fcojax.types import Array, CountOrZero, Key, NonNegative, OneArray, Real
from fcojax.uploads.coding import from_vector
from fcojax.uploads.contract import MEAN
from fcojax.uploads.stack import STACK, Stacked, combined
from fcojax.uploads.transform import Facts, Opened, Sent, UploadTransform


class Attack(NamedTuple):
    """The uploads that bad clients send.

    Attributes:
      name: the call that makes it.
      alone: ``(leaf, key) -> leaf`` for each leaf of an honest upload; ``None`` if it needs other
        clients' uploads.
      together: ``(points, weights, bad) -> point``: the upload of every bad client, given the
        honest uploads of all clients, of shape [n, d], their weights and which clients are bad.

    Example:
      >>> infinite = Attack("infinite", lambda leaf, key: jnp.full_like(leaf, jnp.inf))
    """

    name: str
    alone: Callable[[OneArray, Key], Array] | None = None
    together: Callable[[OneArray, OneArray, OneArray], Array] | None = None

    example = "attacks.scaled(-1.0)"


@validated
def scaled(factor: Real) -> Attack:
    """Return the attack that sends a multiple of the honest upload, such as -1 or 1000 times it.

    Args:
      factor: the multiple; a negative one reverses the upload.

    Example:
      >>> scaled(1000.0).alone(jnp.array([0.5]), None).tolist()
      [500.0]
    """
    return Attack(f"scaled({factor})", lambda leaf, key: jnp.asarray(factor, leaf.dtype) * leaf)


@validated
def inner_product(strength: NonNegative = 2.0) -> Attack:
    """Return the attack that sends the honest mean times a negative number.

    Args:
      strength: the number, without its sign; 1 for the flipped mean.

    Example:
      >>> points = jnp.array([[1.0], [3.0], [0.0]])
      >>> inner_product(2.0).together(points, jnp.ones(3), jnp.array([0, 0, 1])).tolist()
      [-4.0]

    References:
      Xie, Koyejo and Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product
      manipulation", UAI 2019.
    """

    def together(points, weights, bad):
        return -strength * _moments(points, weights, bad)[0]

    return Attack(f"inner_product({strength})", together=together)


@validated
def little_is_enough(deviations: NonNegative = 1.5) -> Attack:
    """Return the attack that sends the honest mean minus a multiple of the deviation, by entry.

    Args:
      deviations: the multiple.

    Example:
      >>> points = jnp.array([[1.0], [3.0], [0.0]])
      >>> little_is_enough(1.0).together(points, jnp.ones(3), jnp.array([0, 0, 1])).tolist()
      [1.0]

    References:
      Baruch, Baruch and Goldberg, "A little is enough: circumventing defenses for distributed
      learning", NeurIPS 2019.
    """

    def together(points, weights, bad):
        mean, deviation = _moments(points, weights, bad)
        return mean - deviations * deviation

    return Attack(f"little_is_enough({deviations})", together=together)


@factory
def attacked(clients: Sequence[CountOrZero], attack: Attack) -> UploadTransform:
    """Return the transform in which some clients are bad; the first of a chain.

    Their states stay as if they were honest, and ``Public`` parts are unchanged.

    Args:
      clients: indices of the bad clients.
      attack: what they send.

    Example:
      >>> import fcojax
      >>> bad = attacked((2,), scaled(1000.0))
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uploads=bad)
    """
    chosen = np.sort(np.asarray(clients, np.int32).reshape(-1))
    name = f"attacked({tuple(chosen.tolist())}, {attack.name})"

    def is_bad(at):
        return jnp.any(jnp.asarray(chosen) == at.client)

    def send(at, payload, state):
        assert attack.alone is not None
        keys = jax.random.split(at.key, max(1, len(payload)))
        sent = [attack.alone(leaf, own) for leaf, own in zip(payload, keys, strict=False)]
        return Sent(tree.where(is_bad(at), sent, payload))

    def flagged(at, payload, client_state, server_state):
        # At the front: another transform may have added a number at the end, which its receive,
        # called before, takes from there.
        return Opened([is_bad(at).astype(float), *payload])

    def unflagged(at, found, weights, server_state):
        return found._replace(mean=found.mean[1:]), server_state

    if attack.alone is not None:
        return UploadTransform(name, send=send)
    return UploadTransform(name, open=flagged, receive=unflagged, facts=Facts(attack=attack.name))


@factory
def seeing_all(attack: Attack, aggregator: Aggregator = MEAN) -> Aggregator:
    """Return the aggregator whose bad clients know the honest uploads of all clients of the round.

    Args:
      attack: one that sees all uploads, such as ``little_is_enough()``; the same is passed to
        ``attacked``.
      aggregator: the aggregator that is attacked.

    Example:
      >>> import fcojax
      >>> attack = inner_product(2.0)
      >>> plan = fcojax.Plan(
      ...     fcojax.local_steps(1), uploads=attacked((2,), attack), aggregator=seeing_all(attack))
    """
    base, together = aggregator, attack.together
    if together is None:
        raise ValueError(
            f"attack is {attack.name}, which uses no other uploads; pass little_is_enough() or "
            "another that sees all."
        )

    def finish(hparams, stacked: Stacked, weights, memory, key):
        bad, *sent = stacked.terms
        points, like = as_points(sent), [leaf[0] for leaf in sent]
        planted = together(points, stacked.shares.astype(points.dtype), bad)
        points = jnp.where(bad[:, None] > 0, planted[None].astype(points.dtype), points)
        parts = jax.vmap(lambda point: from_vector(point, like))(points)
        mean, memory = combined(base, hparams, parts, stacked.shares, weights, memory, key)
        return [jnp.zeros((), bad.dtype), *mean], memory

    return base._replace(
        init=lambda payload: base.init(payload[1:]),
        term=lambda hparams, payload, memory: payload,
        collect=STACK,
        finish=finish,
        attack=attack.name,
    )


def _moments(points: Array, weights: Array, bad: Array) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of the honest uploads, per coordinate."""
    honest = jnp.where(bad > 0, 0, weights)
    total = jnp.sum(honest)
    honest = (honest / jnp.where(total > 0, total, 1))[:, None]
    mean = jnp.sum(honest * points, axis=0)
    return mean, jnp.sqrt(jnp.sum(honest * (points - mean[None]) ** 2, axis=0))
