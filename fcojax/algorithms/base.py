"""The contract of an algorithm: five pure functions, and what they exchange."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, cast

import jax

from fcojax.algorithms.local import Local
from fcojax.arguments import refuse_when_named, show_readably, validated
from fcojax.memo import memoised
from fcojax.types import Arguments, Array, Key, Params, PyTree, Scalar


class Public(NamedTuple):
    """A small, non-sensitive part of an upload, such as a step count, that bypasses transforms.

    Transforms and aggregators leave it unchanged; the server receives its weighted mean. The value
    is a float, or a pytree of floats, whose mean makes sense.

    Example:
      >>> from fcojax.algorithms import Public
      >>> upload = {"moved": [0.5, -1.0], "num_steps": Public(10.0)}
    """

    value: PyTree


class Known(NamedTuple):
    """A part of a message that clients have already, whose bytes are not counted.

    All clients read the same arrays, such as earlier messages; a client's own work does not grow
    with them.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.algorithms import Known
      >>> message = jnp.int8(1), Known(jnp.zeros((100, 3)))
    """

    value: PyTree


def uncounted(message: PyTree) -> PyTree:
    """Return a message without the parts whose bytes are not counted."""
    return jax.tree.map(
        lambda part: () if isinstance(part, Known) else part,
        message,
        is_leaf=lambda part: isinstance(part, Known),
    )


class NewRow(NamedTuple):
    """What ``server_update`` may return for an array of its state of which only one row changes.

    The engine writes the row in place, in every round: also if the step is refused or no client
    counts, when all other parts of the state stay. So the row must not depend on the uploads. The
    whole array would be read to check that it is finite, and copied to be able to keep the old one.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.algorithms import NewRow
      >>> third = NewRow(index=jnp.int32(2), value=jnp.zeros(3))
    """

    index: Array
    value: Array


class Displacement(NamedTuple):
    """An upload: how far a client moved, in the primal or in the dual, and the steps it took.

    ``elapsed`` is the sum of its step sizes or the number of its steps, from which the server
    computes the weight of a penalty; ``()`` if it does not need it.

    Example:
      >>> from fcojax.algorithms import Displacement, Public
      >>> upload = Displacement({"kernel": 0.5, "bias": -1.0}, Public(10.0))
    """

    params: Params
    elapsed: Public | tuple


class ClientResult(NamedTuple):
    """The result of one client's round.

    Attributes:
      state: the client's new state, used in the next round it takes part in.
      upload: a difference, so that zero means no change. Parts wrapped in ``Public`` bypass
        transforms and aggregator.
      metrics: scalars, averaged over the cohort as the upload is.

    Example:
      >>> from fcojax.algorithms import ClientResult
      >>> result = ClientResult(state=(), upload={"kernel": 0.5, "bias": -1.0}, metrics={})
    """

    state: PyTree
    upload: PyTree
    metrics: dict[str, Array]


def once_each(hparams: Any, before: PyTree, after: PyTree) -> tuple[Scalar, Scalar]:
    """Return one message down and one up, the usual exchange."""
    del hparams, before, after
    return 1, 1


class Facts(NamedTuple):
    """What an algorithm needs of a run, and what it is made of.

    Attributes:
      needs_everyone: whether it is correct only if all clients take part in every round; the engine
        then refuses cohorts that leave clients out or lose uploads. With ``"or held"``, for two
        exchanges per round of the method, it accepts ``held(sampler, rounds=2)``.
      codecs: which transforms its uploads may have: ``"any"``; ``"without feedback"`` if uploads
        change their meaning between rounds, so that the part that one left out cannot be added
        to the next upload; ``"none"`` if it compresses its uploads itself, or is exact only without
        compression.
      num_clients: the number of clients that it is made for; ``None`` for any.
      exact: whether its limit minimises the mean loss plus psi, with several full-batch steps.
      parts: the names of its geometry, correction and server step, if it has them.
      factory: the function that made it; set by ``takes``.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_pd(None).facts.needs_everyone
      True
    """

    needs_everyone: bool | Literal["or held"] = False
    codecs: Literal["any", "without feedback", "none"] = "any"
    num_clients: int | None = None
    exact: bool = False
    parts: tuple[str, ...] = ()
    factory: Callable[..., Any] | None = None


HparamsType = TypeVar("HparamsType")


class Algorithm(NamedTuple, Generic[HparamsType]):
    """A federated algorithm: five functions, and further properties that are passed by keyword.

    The functions are called by position. Numbers that a sweep may vary come as ``hparams``, a
    NamedTuple of scalars, with their values in this round.

    If the server does not count a client's upload, because it was lost or not finite, the client
    keeps its old state, as if it had been absent. So a sum over rounds on the server must consist
    of uploads, in proportion to ``fraction``, and a client must not count rounds by itself.

    Attributes:
      init: ``(hparams, params) -> (server, client)``, the initial states from the start point; the
        engine copies that of one client for each client.
      broadcast: ``(hparams, server) -> message``, everything that the server sends to each client.
      client_update: ``(hparams, message, client, local, key) -> ClientResult``, one client's round;
        ``local`` is its handle on its examples, which runs the local steps, and ``key`` a PRNG key
        of this client and round, independent of the minibatches.
      server_update: ``(hparams, server, mean_upload, fraction, key) -> server``, the new state,
        with the structure, shapes and dtypes of the old one, from the weighted mean of the uploads
        that count. ``fraction`` is the share of the population's weight that counts in it: a sum
        over all clients, such as a mean control variate, changes by ``fraction`` times the mean.
        A ``NewRow`` stands for an array of which only that row changes.
      model: ``(hparams, server) -> params``, the current model.
      sent: ``(hparams, before, after) -> (down, up)``, how many messages a round sends each way,
        from the server's states at its start and end; 0 for a message that is not sent.
      hparams_type: the type of its hyperparameters; ``None`` if not known.
      client_model: ``(hparams, message, client) -> params``, a client's own model, computed from
        the last message that it received; ``None`` if all clients use ``model``.
      facts: what it needs of a run.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
      >>> fed_avg.init(fed_avg.hparams_type(client_lr=0.1), 1.0)
      (1.0, ())
    """

    init: Callable[[Any, Params], tuple[PyTree, PyTree]]
    broadcast: Callable[[Any, PyTree], PyTree]
    client_update: Callable[[Any, PyTree, PyTree, Local, Key], ClientResult]
    server_update: Callable[[Any, PyTree, PyTree, Array, Key], PyTree]
    model: Callable[[Any, PyTree], Params]
    sent: Callable[[Any, PyTree, PyTree], tuple[Scalar, Scalar]] = once_each
    hparams_type: type[HparamsType] = cast(Any, None)
    client_model: Callable[[Any, PyTree, PyTree], Params] | None = None
    facts: Facts = Facts()


# An argument that a factory may take after the loss; the launcher builds it for the problem.
Kind = Literal["penalty", "mirror", "manifold"]


class Factory(Protocol, Generic[Arguments, HparamsType]):
    """A function that builds an algorithm, decorated with ``takes``; see there."""

    Hparams: type[HparamsType]
    geometry: tuple[Kind, ...]

    def __call__(
        self, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Algorithm[HparamsType]: ...


@validated
def takes(
    hparams_type: type[HparamsType], *geometry: Kind
) -> Callable[[Callable[Arguments, Algorithm]], Factory[Arguments, HparamsType]]:
    """Decorate a factory with the type of its hyperparameters and the geometry it takes.

    Programs that build algorithms by name, such as the launcher, call the factory with the loss, of
    one number per example, and then with the pieces of geometry named here, in this order: the
    penalty psi, the mirror map with its penalty, or the manifold. Equal arguments return the same
    algorithm, so nothing is compiled twice for it, and arguments are checked against their
    annotations. A factory with an argument ``hparams_type`` lets its caller choose another type.
    An algorithm built with the loss ``None`` can be inspected, but not run. The two arguments
    become ``factory.Hparams`` and ``factory.geometry``.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_mid.geometry
      ('mirror',)
    """

    def attach(factory: Callable[Arguments, Algorithm]) -> Factory[Arguments, HparamsType]:
        refuse_when_named(hparams_type)
        checked = validated(factory)
        chooses = "hparams_type" in inspect.signature(factory).parameters

        @memoised
        @functools.wraps(factory)
        def build(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Algorithm:
            given: Any = (_no_loss, *args[1:]) if args and args[0] is None else args
            built = checked(*given, **kwargs)
            if not isinstance(built, Algorithm):
                return built
            own = built.hparams_type if chooses else hparams_type
            return built._replace(
                hparams_type=kwargs.get("hparams_type", own),
                facts=built.facts._replace(factory=factory),
            )

        show_readably(build)
        typed = cast(Factory[Arguments, HparamsType], build)
        typed.Hparams = hparams_type
        typed.geometry = geometry
        return typed

    return attach


def _no_loss(params: Params, examples: PyTree) -> Array:
    raise ValueError("the algorithm was built with the loss None; pass a loss to run it.")
