"""The contract: what an algorithm is, and nothing else.

An algorithm is a tuple of pure functions. Numbers that a sweep may vary come in as ``hparams``,
a NamedTuple of scalars and the first argument of all of them.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, cast

from fcojax.algorithms.local import Local
from fcojax.types import Array, Key, Params, PyTree


class Cohort(NamedTuple):
    """Who takes part in a round.

    Attributes:
      members: client indices, or ``None`` for every client in place, with no gather.
      weights: weights of the mean, one per member; 0 marks one that sits this round out.
      fraction: the share of the population's weight that takes part, so that a sum over the
        population is ``fraction`` times a mean over the cohort.
      arrives: which members' uploads reach the server, or ``None`` if all do; a client whose upload
        is lost has worked and keeps its new state.
    """

    members: Array | None
    weights: Array
    fraction: Array
    arrives: Array | None = None


class ClientResult(NamedTuple):
    """What a client leaves behind.

    Attributes:
      state: written back to this client's row, for the next round it takes part in.
      upload: a difference, so that zero means "nothing happened".
      metrics: scalars, averaged over the cohort as the upload is.
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


class Algorithm(NamedTuple):
    """A federated algorithm; build it once, because a rebuilt one is a new trace.

    Beside its five functions: ``needs_everyone`` if it makes no sense with a cohort that leaves
    clients out, which is then refused.
    """

    init: Init
    broadcast: Broadcast
    client_update: ClientUpdate
    server_update: ServerUpdate
    model: Model
    needs_everyone: bool = False


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
    then with the pieces of geometry named here, in this order.

    Args:
      hparams: a NamedTuple of numbers; becomes ``factory.Hparams``.
      geometry: any of ``penalty``, ``mirror`` and ``manifold``; becomes ``factory.geometry``.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_mid.geometry
      ('mirror',)
    """
    unknown = [name for name in geometry if name not in GEOMETRY]
    if unknown:
        raise ValueError(f"there is no geometry {unknown[0]!r}; pass names out of {GEOMETRY}.")

    def attach(factory: Callable[Arguments, Algorithm]) -> Factory[Arguments]:
        typed = cast(Factory[Arguments], factory)
        typed.Hparams = hparams
        typed.geometry = geometry
        return typed

    return attach
