"""What happens to an upload: one chain of transforms, up on the client and down on the server.

A client applies ``send`` of each in order, and what the last one returns travels. The server
decodes it, applies ``open`` of each in reverse order to every upload, aggregates, and applies
``receive`` of each in reverse order to the result. ``Public`` parts of an upload bypass the chain.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.types import Array, PyTree, Scalar
from fcojax.uploads.contract import (
    At,
    Received,
    RoundWeights,
    UploadChain,
    merged,
    require_same_form,
    split,
)
from fcojax.xla.jaxprs import depend_on_first


class Sent(NamedTuple):
    """What a transform sends of an upload.

    Attributes:
      wire: what the next transform gets; of the last one, what travels.
      client_state: what the client keeps for its next upload, if this one counts.
      weight: 0 if the upload does not arrive, else 1; ``None`` if it always does.
      metrics: scalars for the history, averaged like the clients' metrics.
      num_bytes: the bytes of ``wire``; ``None`` for all of its arrays. It may depend on shapes,
        hyperparameters and the round's key, not on the upload.

    Example:
      >>> sent = Sent([jnp.zeros(2)], num_bytes=1)
    """

    wire: PyTree
    client_state: PyTree = ()
    weight: Any = None
    metrics: dict[str, Array] = {}
    num_bytes: Scalar | None = None


class Opened(NamedTuple):
    """What the server makes of one upload.

    Attributes:
      payload: a list of arrays. A transform may add some, whose sum its ``receive`` takes away.
      weight: 0 leaves the client out, and another number multiplies its weight; ``None`` for 1.
      metrics: as in ``Sent``.

    Example:
      >>> left_out = Opened([jnp.ones(2)], weight=0)
    """

    payload: list
    weight: Any = None
    metrics: dict[str, Array] = {}


class Noise(NamedTuple):
    """The noise that a transform adds to a sum, as privacy accounting needs it.

    Attributes:
      multiplier: standard deviation of the noise divided by the largest contribution of one client,
        a number or a function of the hyperparameters.
      bands: coefficients of noise that is correlated across rounds.
    """

    multiplier: Any
    bands: tuple[float, ...] = (1.0,)


class Facts(NamedTuple):
    """What is known of a transform before a run; it decides what may follow what.

    Attributes:
      leaves_out: the name under which the history counts clients whose weight it sets to 0, such as
        ``"lost"``; ``None`` if it sets none.
      feeds_back: whether it adds a part of an upload to later ones. Refused for algorithms whose
        uploads change their meaning between rounds.
      estimates_all: whether it returns an estimate of the mean over all clients, present or not.
        Refused for algorithms whose server step depends on ``fraction``.
      noisy: the ``Noise`` that it adds for privacy; ``True`` if its amount is unknown.
      needs_sum: whether ``receive`` needs the sum and not the mean.
      arrives: ``(clients) -> probabilities`` that their uploads are not lost; ``None`` if all are
        kept.
      by_round: whether ``arrives`` is a mean over rounds that differ.
      limit: seconds that the server waits for uploads.
      num_clients: the number of clients that it is made for; ``None`` for any.
      attack: what the ``attack`` of the plan's aggregator has to be, for an attack that sees all
        uploads.

    Example:
      >>> from fcojax import uploads
      >>> uploads.ef14(uploads.top_k(1)).facts.feeds_back
      True
    """

    leaves_out: str | None = None
    feeds_back: bool = False
    estimates_all: bool = False
    noisy: bool | Noise = False
    needs_sum: bool = False
    arrives: Callable[[Array], Any] | None = None
    by_round: bool = False
    limit: float = float("inf")
    num_clients: int | None = None
    attack: Any = None


@dataclasses.dataclass(frozen=True)
class UploadTransform(UploadChain):
    """One thing that happens to uploads; every default passes them on unchanged.

    A payload is the list of the arrays of an upload that are not ``Public``. All functions are
    pure; numbers such as a step size are fields of ``hparams``. A client whose upload is lost, left
    out or not finite changes nothing but its count.

    Attributes:
      name: the call that makes it, for error messages.
      init: ``(payload) -> (client_state, server_state)``, given a payload of zeros. There is one
        client state for each client.
      send: ``(at, payload, client_state) -> Sent``, on the client.
      decode: ``(at, wire, client_state) -> payload``, the inverse of ``send``, on the server; for
        at most one transform of a chain. ``None`` if ``send`` returns a payload.
      open: ``(at, payload, client_state, server_state) -> Opened``, on the server, for each upload;
        ``None`` to leave it as it is.
      receive: ``(at, received, weights, server_state) -> (Received, server_state)``, on the server,
        with the ``RoundWeights``; ``None`` to leave it as it is.
      bound: ``(hparams, norm) -> norm``: the largest norm that ``open`` returns for a payload of
        this norm; ``None`` if it is not known. Accounting needs it where noise is added.
      facts: what is known before a run.
      parts: the transforms of a ``chain``, whose own functions are not called.

    Example:
      >>> def signs(at, payload, client_state, server_state):
      ...     return Opened([jnp.sign(leaf) for leaf in payload])
      >>> mean_of_signs = UploadTransform("signs", open=signs)
    """

    name: str
    init: Callable[[list], tuple[PyTree, PyTree]] = lambda payload: ((), ())
    send: Callable[[At, PyTree, PyTree], Sent] = lambda at, payload, kept: Sent(payload, kept)
    decode: Callable[[At, Any, PyTree], PyTree] | None = None
    open: Callable[[At, list, PyTree, PyTree], Opened] | None = None
    receive: Callable[[At, Received, RoundWeights, PyTree], tuple[Received, PyTree]] | None = None
    bound: Callable[[Any, Any], Any] | None = None
    facts: Facts = Facts()
    parts: "tuple[UploadTransform, ...] | None" = None

    @property
    def transforms(self) -> "tuple[UploadTransform, ...]":
        """The transforms of a chain in their order, or this one alone."""
        return (self,) if self.parts is None else self.parts

    @property
    def names(self) -> tuple[str, ...]:
        """The names of counts; a client is counted under the first that leaves it out."""
        found = [one.facts.leaves_out for one in reversed(self.transforms)]
        return tuple(dict.fromkeys(name for name in found if name is not None))

    @property
    def needs_sum(self) -> bool:
        """Whether a transform needs the sum of the uploads."""
        return any(one.facts.needs_sum for one in self.transforms)

    @property
    def noisy(self) -> bool | Noise:
        """The noise of a transform; ``False`` without noise."""
        return next((one.facts.noisy for one in self.transforms if one.facts.noisy), False)

    @property
    def estimates_all(self) -> "UploadTransform | None":
        """A transform that estimates the mean over all clients, if any."""
        return next((one for one in self.transforms if one.facts.estimates_all), None)

    def first_states(self, payload):
        pairs = [one.init(payload) for one in self.transforms]
        return tuple(own for own, _ in pairs), tuple(servers for _, servers in pairs)

    def through(self, at, payload, states, servers, metrics):
        sent, kept = send(self, at, payload, states)
        metrics = merged(metrics, sent.metrics, "client_update of the algorithm")
        there = at._replace(key=None)
        decoded = decode(self, there, sent.wire, payload, states)
        found, kept = opened(self, there, decoded, states, servers, kept, metrics)
        return *found, kept, sent.client_state

    def received(self, at, found, weights, servers):
        after = list(servers)
        for index in reversed(range(len(servers))):
            one = self.transforms[index]
            if one.receive is None:
                continue
            own = at
            # The one that adds noise has the key itself; no two transforms share it.
            if not one.facts.noisy:
                own = at._replace(private_key=jax.random.fold_in(at.private_key, index))
            found, after[index] = one.receive(own, found, weights, servers[index])
            require_same_form(f"receive of {one.name}", servers[index], after[index])
        return found, tuple(after)

    def num_bytes(self, at, payload):
        sent, _ = send(self, at, payload, self.first_states(payload)[0])
        return tree.num_bytes(sent.wire) if sent.num_bytes is None else sent.num_bytes

    def require_fit(self, algorithm, plan, update, at, result, states, data):
        if self.noisy:
            _require_equal_public_parts(algorithm, plan, update, at.hparams, states, data)

        def num_bytes(given, hparams, round_key):
            sent, _ = send(self, at._replace(hparams=hparams, round_key=round_key), *given)
            return jnp.asarray(0 if sent.num_bytes is None else sent.num_bytes)

        payload = tree.zeros_like(split(result.upload)[0])
        given = payload, self.first_states(payload)[0]
        # Bytes are computed once in a round, on zeros, and multiplied by the participants.
        if any(depend_on_first(num_bytes, given, at.hparams, at.round_key)):
            raise ValueError(
                "num_bytes of a transform depends on the payload, and bytes are counted once a "
                "round for all clients; let it depend on shapes, hparams and the round's key alone."
            )

        def step(fraction, hparams, server, upload):
            return algorithm.server_update(hparams, server, upload, fraction, jax.random.key(0))

        # SCAFFOLD adds `fraction` times the mean to its control variate. An estimate over all
        # clients includes the absent ones, and the product would count them wrongly. FedAvg ignores
        # `fraction`, so it passes: an unused argument of the traced step does not count.
        estimating = None if at.by_rule else self.estimates_all
        fraction = jax.ShapeDtypeStruct((), jnp.result_type(float))
        given = fraction, at.hparams, states[0], result.upload
        if estimating and any(depend_on_first(step, *given)):
            raise ValueError(
                "the algorithm's server step depends on fraction, but "
                f"{estimating.name} estimates the mean over all clients; pass a transform that "
                "leaves the mean of this round's uploads, such as uploads.ef14(...)."
            )


def _require_equal_public_parts(algorithm, plan, update, hparams, states, data) -> None:
    """Raise ``ValueError`` if public parts could tell clients apart.

    They are sent without noise. A step count that differs between clients reveals who took part,
    whether or not it depends on the data.
    """
    server, client = states
    work = plan.work
    if work.counts is not None and len(set(work.counts)) == 1:
        # Equal counts, given one by one, do not distinguish clients.
        plan = plan._replace(work=work._replace(counts=None, fewest=None))

    def public(seen, hparams, server):
        client, data, index = seen
        result = update(algorithm, plan, hparams, server, client, data, index)
        return split(result.upload)[1]

    # Everything that can differ between two clients, including the index: a plan may give each
    # client its own number of steps.
    seen = client, data, jnp.zeros((), jnp.int32)
    if any(depend_on_first(public, seen, hparams, server)):
        raise ValueError(
            "the plan adds noise, but Public parts of this algorithm's upload depend on the "
            "client or its data and get no noise; pass equal work to all clients, as "
            "local_steps(10) does, or an algorithm without such parts."
        )


def send(given: UploadChain, at: At, payload: list, states: tuple) -> tuple[Sent, dict[str, Array]]:
    """Return what a client sends, and for each name whether the upload is kept."""
    wire, after, kept, metrics, num_bytes = payload, [], {}, {}, None
    for index, (one, state) in enumerate(zip(given.transforms, states, strict=True)):
        # Compression draws from the client's key, others from one of their place, counted from the
        # network, so that losses do not depend on what is before them.
        key = at.key
        if one.decode is None:
            key = jax.random.fold_in(at.key, len(given.transforms) - index)
        sent = one.send(at._replace(key=key), wire, state)
        require_same_form(f"send of {one.name}", state, sent.client_state)
        wire, after = sent.wire, [*after, sent.client_state]
        if one.decode is not None or sent.num_bytes is not None:
            num_bytes = sent.num_bytes
        metrics = merged(metrics, sent.metrics, one.name)
        if sent.weight is not None:
            kept = _both(kept, one, sent.weight)
    return Sent(wire, tuple(after), None, metrics, num_bytes), kept


def decode(given: UploadChain, at: At, wire: PyTree, like: list, states: tuple) -> list:
    """Return the payload that the server decodes; ``like`` has the shapes of the upload's."""
    for one, state in zip(given.transforms, states, strict=True):
        if one.decode is not None:
            found = one.decode(at, wire, state)
            require_same_form(f"decode of {one.name}", like, found, "payload")
            return found
    return wire


def opened(
    given: UploadChain,
    at: At,
    payload: list,
    states: tuple,
    servers: tuple,
    kept: dict[str, Array],
    metrics: dict[str, Array],
) -> tuple[Opened, dict[str, Array]]:
    """Return what the server makes of a decoded upload, and for each name whether it is kept.

    ``kept`` and ``metrics`` are those of the client's transforms.
    """
    weight = None
    for one, state, server in reversed(list(zip(given.transforms, states, servers, strict=True))):
        if one.open is None:
            continue
        found = one.open(at, payload, state, server)
        payload, metrics = found.payload, merged(metrics, found.metrics, one.name)
        if found.weight is None:
            continue
        if one.facts.leaves_out is not None:
            kept = _both(kept, one, found.weight)
        else:
            weight = found.weight if weight is None else weight * found.weight
            if given.noisy:
                raise ValueError(
                    f"{one.name} changes the weights of clients, but the noise of the chain is for "
                    "the weights p_m; pass one of them."
                )
    return Opened(payload, weight, metrics), kept


def _both(kept: dict[str, Array], one: UploadTransform, weight: Array) -> dict[str, Array]:
    """Return the dictionary with one more condition under the name of a transform."""
    name, here = one.facts.leaves_out, jnp.asarray(weight).astype(bool)
    if name is None:
        raise ValueError(f"{one.name} returns a weight; pass Facts(leaves_out=...) with its name.")
    return kept | {name: here & kept[name] if name in kept else here}


NOTHING: Any = UploadChain()  # what a chain of nothing returns


def number(hparams: Any, given: Any) -> Any:
    """Return a number, or the value of a function of the hyperparameters, which can be swept."""
    return given(hparams) if callable(given) else given
