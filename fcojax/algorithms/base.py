"""The contract: what an algorithm is, and nothing else.

An algorithm is a tuple of pure functions. Numbers that a sweep may vary come in as ``hparams``,
a NamedTuple of scalars and the first argument of all of them.
"""

import functools
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, cast

from fcojax.algorithms.arguments import check_arguments
from fcojax.algorithms.local import Local
from fcojax.memo import memoised
from fcojax.types import Array, Key, Params, PyTree, Scalar


class Cohort(NamedTuple):
    """Who takes part in a round.

    Attributes:
      members: client indices, or ``None`` for every client in place, with no gather.
      weights: weights of the mean, one per member; 0 marks one that sits this round out.
      fraction: the share of the population's weight that takes part. What the server adds up over
        rounds, such as a control variate, moves by ``fraction`` times the mean over the cohort:
        that is the mean over the population of what changed.
      arrives: which members' uploads reach the server, or ``None`` if all do. A client whose
        upload is lost gets no answer and takes its state back.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp
      >>> cohort = fcojax.uniform_cohort(2)(jax.random.key(0), jnp.int32(0), 8)
      >>> cohort.members.shape, float(cohort.fraction), cohort.arrives
      ((2,), 0.25, None)
    """

    members: Array | None
    weights: Array
    fraction: Array
    arrives: Array | None = None


class Public(NamedTuple):
    """A part of an upload that is nobody's secret and small, like a number of steps.

    An uplink neither clips nor compresses nor blurs it; its weighted mean is what arrives. A server
    that takes a prox learns so how many steps the mean upload stands for.

    Attributes:
      value: numbers, whose mean has to make sense: floats, or a pytree of them.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.algorithms import ClientResult, Public
      >>> moved, num_steps = jnp.array([0.5, -1.0]), jnp.array(10)
      >>> upload = {"moved": moved, "num_steps": Public(1.0 * num_steps)}
      >>> float(ClientResult(state=(), upload=upload, metrics={}).upload["num_steps"].value)
      10.0
    """

    value: PyTree


class ClientResult(NamedTuple):
    """What a client leaves behind.

    Attributes:
      state: written back to this client's row, for the next round it takes part in, if the server
        has heard of it.
      upload: a difference, so that zero means "nothing happened". Parts wrapped in ``Public`` are
        averaged as they are, whatever the uplink does to the rest.
      metrics: scalars, averaged over the cohort as the upload is.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.algorithms import ClientResult
      >>> start, end = jnp.array([1.0, 2.0]), jnp.array([1.5, 1.0])
      >>> result = ClientResult(state=(), upload=end - start, metrics={})
      >>> result.upload.tolist()
      [0.5, -1.0]
    """

    state: PyTree
    upload: PyTree
    metrics: dict[str, Array]


class Init(Protocol):
    """``(hparams, params) -> (server, client)``: the first states, one client's worth of them."""

    def __call__(self, hparams: Any, params: Params) -> tuple[PyTree, PyTree]: ...


class Broadcast(Protocol):
    """``(hparams, server) -> message``: all that goes down the wire."""

    def __call__(self, hparams: Any, server: PyTree) -> PyTree: ...


class ClientUpdate(Protocol):
    """``(hparams, message, client, local, key) -> ClientResult``: one client's round."""

    def __call__(
        self, hparams: Any, message: PyTree, client: PyTree, local: Local, key: Key
    ) -> ClientResult: ...


class ServerUpdate(Protocol):
    """``(hparams, server, mean_upload, cohort, key) -> server``: the mean is all that arrives."""

    def __call__(
        self, hparams: Any, server: PyTree, mean_upload: PyTree, cohort: Cohort, key: Key
    ) -> PyTree: ...


class Model(Protocol):
    """``(hparams, server) -> params``: the point we would ship today."""

    def __call__(self, hparams: Any, server: PyTree) -> Params: ...


class Sent(Protocol):
    """``(hparams, before, after) -> (down, up)``: how often a round's messages really travel.

    ``before`` and ``after`` are the server's states at the round's start and end; 0 and 1 for a
    message that is only sent in some rounds, which a simulation computes in all of them.
    """

    def __call__(self, hparams: Any, before: PyTree, after: PyTree) -> tuple[Scalar, Scalar]: ...


def once_each(hparams: Any, before: PyTree, after: PyTree) -> tuple[Scalar, Scalar]:
    """One message down and one up for every client that takes part, the usual exchange."""
    del hparams, before, after
    return 1, 1


class Algorithm(NamedTuple):
    """A federated algorithm.

    Beside its five functions: ``needs_everyone`` if every client has to be heard in every round,
    so that a cohort which leaves clients out or loses uploads is refused; ``sent``, how often
    messages travel; ``hparams_type``, the type of its hyperparameters, or ``tuple`` for any; and
    ``entrywise`` if a client could work on some entries alone, as ``lazy`` lets it: it keeps no
    state, takes its gradients in ``local.scan``, treats each entry of the message by itself, and
    sends zero for one in which all these gradients are zero.

    A client whose upload the server does not use, because it was lost or not finite, takes its
    state back, as if it had not taken part. So whatever the server adds up over time must consist
    of uploads, in proportion to ``cohort.fraction``, and a client must not count rounds that it
    cannot know the server counted.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
      >>> hparams = fed_avg.hparams_type(client_lr=0.1)
      >>> server, client = fed_avg.init(hparams, jnp.zeros(2))
      >>> fed_avg.broadcast(hparams, server).tolist(), client
      ([0.0, 0.0], ())
    """

    init: Init
    broadcast: Broadcast
    client_update: ClientUpdate
    server_update: ServerUpdate
    model: Model
    needs_everyone: bool = False
    sent: Sent = once_each
    hparams_type: Any = None
    entrywise: bool = False


Arguments = ParamSpec("Arguments")


class Factory(Protocol, Generic[Arguments]):
    """A function that builds an algorithm, and says what to build it from.

    Attributes:
      Hparams: the type of its hyperparameters.
      geometry: what it takes after the loss, in order: names out of ``GEOMETRY``.
    """

    Hparams: type
    geometry: tuple[str, ...]

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Algorithm: ...


# What a factory may ask for beside the loss; a launcher has one of each for a problem.
GEOMETRY = ("penalty", "mirror", "manifold")


def takes(
    hparams: type, *geometry: str
) -> Callable[[Callable[Arguments, Algorithm]], Factory[Arguments]]:
    """Decorates a factory with the type of its hyperparameters and the geometry it takes.

    Programs that build algorithms by name, such as the launcher, call the factory with the loss and
    then with the pieces of geometry named here, in this order. The same arguments give the same
    algorithm, so nothing is compiled twice for it. A factory with an argument called ``hparams``
    lets its caller choose another type there.

    Args:
      hparams: a NamedTuple of numbers; becomes ``factory.Hparams``.
      geometry: any of ``penalty``, ``mirror`` and ``manifold``; becomes ``factory.geometry``.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_mid.geometry
      ('mirror',)
    """
    if not isinstance(hparams, type):
        raise ValueError(
            f"takes was given {hparams!r} as the type of the hyperparameters; pass a named tuple "
            'first, then the geometry, as in takes(Hparams, "penalty").'
        )
    unknown = [name for name in geometry if name not in GEOMETRY]
    if unknown:
        raise ValueError(f"there is no geometry {unknown[0]!r}; pass names out of {GEOMETRY}.")

    def attach(factory: Callable[Arguments, Algorithm]) -> Factory[Arguments]:
        @memoised
        @functools.wraps(factory)
        def build(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Algorithm:
            check_arguments(factory, args, kwargs)
            built = factory(*args, **kwargs)
            if not isinstance(built, Algorithm) or built.hparams_type is tuple:
                return built
            return built._replace(hparams_type=kwargs.get("hparams", hparams))

        typed = cast(Factory[Arguments], build)
        typed.Hparams = hparams
        typed.geometry = geometry
        return typed

    return attach
