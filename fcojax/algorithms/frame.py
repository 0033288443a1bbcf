"""The frame of a method: what its three parts are, and ``method``, which puts them together.

Parts of one family stand beside its methods; ``fcojax.algorithms.parts`` has all that others use.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import (
    Algorithm,
    ClientResult,
    Displacement,
    Facts,
    Public,
    once_each,
)
from fcojax.algorithms.local import Batch, Local, mean_gradient
from fcojax.problems.losses import Loss
from fcojax.types import Array, Params, PyTree, Scalar

_NO_FACTS = Facts()


class LocalProblem(NamedTuple):
    """A client's task in one round.

    Attributes:
      start: the point from which it starts, as it was sent.
      slope: ``(hparams, gradient, x, batch, *constants) -> slope``, what a step follows at x.
      constants: vectors that stay the same in all steps. A slope that only adds and scales its
        arguments lets linear models step in coordinates of their rows; see ``linear_steps``.
      last: the client's own last point, where a warm start begins.
      memory: what the geometry kept of the client's earlier rounds.
      num_steps: how many steps, if it is not the number of the plan.
    """

    start: PyTree
    slope: Callable[..., Params] = lambda hparams, gradient, x, batch: gradient
    constants: tuple[Params, ...] = ()
    last: PyTree = ()
    memory: PyTree = ()
    num_steps: Array | None = None


class Steps(NamedTuple):
    """A client's local steps: its problem's start, their end, how far it moved, and the memory."""

    start: PyTree
    end: PyTree
    moved: Params
    memory: PyTree


class Geometry(NamedTuple):
    """Where local steps happen, and how they are taken.

    Attributes:
      name: its name in the table of methods.
      steps: ``(loss, hparams, problem, local) -> Steps``, the steps of a client.
      start: ``(hparams, params) -> point``, the start point as the server keeps it.
      memory: ``(hparams, params) -> memory``, what a client's steps keep between rounds.
    """

    example = "local_solvers.gd()"

    name: str
    steps: Callable[[Loss, Any, LocalProblem, Local], Steps]
    start: Callable[[Any, Params], PyTree] = lambda hparams, params: params
    memory: Callable[[Any, Params], PyTree] = lambda hparams, params: ()


def stepping(
    name: str,
    step: Callable[[Any, PyTree, Params, Params], PyTree],
    *,
    model: Callable[[Any, PyTree, PyTree], Params] = lambda hparams, start, carry: carry,
    enter: Callable[[Any, LocalProblem], PyTree] = lambda hparams, problem: problem.start,
    leave: Callable[[PyTree, PyTree], Params] = lambda start, end: tree.sub(end, start),
    start: Callable[[Any, Params], PyTree] = lambda hparams, params: params,
    gradient: Callable[[Loss], Callable[[Params, Batch], Params]] = mean_gradient,
    moved: Callable[..., Params | None] | None = None,
    extragradient: bool = False,
) -> Geometry:
    """Return the geometry of a loop over local steps.

    Args:
      name: its name in the table of methods.
      step: ``(hparams, carry, slope, x) -> carry``, one step from a carry whose model is x.
      model: ``(hparams, start, carry) -> x``, where the gradient is taken.
      enter: ``(hparams, problem) -> carry``, the first carry.
      leave: ``(start, carry) -> moved``.
      start: as in ``Geometry``.
      gradient: ``(loss) -> (x, batch) -> gradient``.
      moved: ``(loss, local, step, problem, first) -> moved``, how far all steps lead from the first
        carry, if they can be taken in another way than one after the other; else ``None``.
      extragradient: whether the slope is taken at the point that a first step reaches.
    """

    def steps(loss, hparams, problem, local):
        gradient_at = gradient(loss)

        def one_step(carry, batch, *constants):
            def moved_by(ahead):
                x = model(hparams, problem.start, ahead)
                slope = problem.slope(hparams, gradient_at(x, batch), x, batch, *constants)
                return step(hparams, carry, slope, x)

            return moved_by(moved_by(carry)) if extragradient else moved_by(carry)

        first, constants = enter(hparams, problem), problem.constants
        far = None if moved is None else moved(loss, local, one_step, problem, first)
        if far is not None:
            return Steps(problem.start, tree.add(first, far), far, problem.memory)
        end = local.scan(
            lambda carry, batch: one_step(carry, batch, *constants),
            first,
            num_steps=problem.num_steps,
        )
        return Steps(problem.start, end, leave(problem.start, end), problem.memory)

    return Geometry(name, steps, start)


class Correction(NamedTuple):
    """What a client keeps between rounds, adds to its gradients, and sends.

    Attributes:
      name: its name in the table of methods.
      begin: ``(hparams, message, own, local) -> LocalProblem``, the task of a round.
      keep: ``(hparams, message, own, local, steps) -> (own, upload)``, after the steps.
      own: ``(params, memory) -> own``, the client's first state; the memory is the geometry's.
      facts: what the method then needs.
      client_model: as in ``Algorithm``.
    """

    name: str
    begin: Callable[[Any, PyTree, PyTree, Local], LocalProblem]
    keep: Callable[[Any, PyTree, PyTree, Local, Steps], tuple[PyTree, PyTree]]
    own: Callable[[Params, PyTree], PyTree] = lambda params, memory: memory
    facts: Facts = _NO_FACTS
    client_model: Callable[[Any, PyTree, PyTree], Params] | None = None


def count_of(hparams: Any, local: Local) -> Array:
    """Return the number of a client's steps in the dtype of ``client_lr``."""
    return local.num_steps.astype(jnp.asarray(hparams.client_lr).dtype)


def elapsed(hparams: Any, local: Local, steps: Steps | None = None) -> Array:
    """Return the sum of a client's step sizes, ``client_lr`` times its number of steps."""
    return count_of(hparams, local) * jnp.asarray(hparams.client_lr)


def none(elapsed: Callable[[Any, Local, Steps], PyTree] | None = None) -> Correction:
    """Nothing is added to the gradients; clients send how far they moved.

    With ``(hparams, local, steps) -> numbers``, such as ``elapsed`` of this module, the upload is a
    ``Displacement``, and the server knows the weight of a penalty.
    """

    def keep(hparams, message, own, local, steps):
        if elapsed is None:
            return steps.memory, steps.moved
        return steps.memory, Displacement(steps.moved, Public(elapsed(hparams, local, steps)))

    return Correction(
        "none", lambda hparams, message, own, local: LocalProblem(message, memory=own), keep
    )


class ServerStep(NamedTuple):
    """What the server keeps, sends, and does with the mean of the uploads.

    Attributes:
      name: its name in the table of methods.
      step: as ``server_update`` of an ``Algorithm``.
      init: ``(hparams, point) -> server``, from the start of the geometry.
      message: as ``broadcast`` of an ``Algorithm``.
      model: as in ``Algorithm``.
      sent: as in ``Algorithm``.
    """

    name: str
    step: Callable[[Any, PyTree, PyTree, Array, Array], PyTree]
    init: Callable[[Any, PyTree], PyTree] = lambda hparams, point: point
    message: Callable[[Any, PyTree], PyTree] = lambda hparams, server: server
    model: Callable[[Any, PyTree], Params] = lambda hparams, server: server
    sent: Callable[[Any, PyTree, PyTree], tuple[Scalar, Scalar]] = once_each


def method(
    loss: Loss,
    geometry: Geometry,
    correction: Correction,
    server_step: ServerStep,
    *,
    facts: Facts = _NO_FACTS,
) -> Algorithm:
    """Return the algorithm of three parts.

    It needs what ``facts`` and its parts say.

    Example:
      >>> from fcojax.algorithms.parts import average, method, primal, pull
      >>> def fed_prox(loss, penalty):
      ...     return method(loss, primal(penalty), pull(), average())
      >>> fed_prox(lambda w, rows: (w - rows["a"]) ** 2, None).facts.parts
      ('primal', 'pull', 'average')
    """

    def init(hparams, params):
        own = correction.own(params, geometry.memory(hparams, params))
        return server_step.init(hparams, geometry.start(hparams, params)), own

    def client_update(hparams, message, own, local, key):
        problem = correction.begin(hparams, message, own, local)
        steps = geometry.steps(loss, hparams, problem, local)
        return ClientResult(*correction.keep(hparams, message, own, local, steps), {})

    return Algorithm(
        init,
        server_step.message,
        client_update,
        server_step.step,
        server_step.model,
        sent=server_step.sent,
        client_model=correction.client_model,
        facts=facts._replace(
            needs_everyone=facts.needs_everyone or correction.facts.needs_everyone,
            codecs=correction.facts.codecs if facts.codecs == "any" else facts.codecs,
            num_clients=facts.num_clients or correction.facts.num_clients,
            parts=(geometry.name, correction.name, server_step.name),
        ),
    )
