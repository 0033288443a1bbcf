r"""Parts of federated methods, and ``method``, which puts them together.

Clients of nearly all methods do the same: from the server's point they take K steps of one size,
:math:`x \leftarrow \mathrm{step}(x, \nabla f(x) + \ldots)`, and send how far they moved. Methods
differ in three parts:

- a ``Geometry``: where the steps happen, such as in the primal, in the dual or on a manifold;
- a ``Correction``: what a client keeps between rounds, what that adds to its gradients, and what
  the client sends;
- a ``ServerStep``: what the server keeps, sends, and does with the mean of the uploads.

The rows of the table of methods are in the other files of this package, by family.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
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
from fcojax.algorithms.linear_steps import linear_steps
from fcojax.algorithms.local import Batch, Local, mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Params, PyTree, Scalar

_NO_FACTS = Facts()


def plain_slope(hparams: Any, gradient: Params, x: Params, batch: Batch) -> Params:
    """Return the gradient of the loss, to which nothing is added."""
    return gradient


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
    slope: Callable[..., Params] = plain_slope
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
    linear: Callable[[PyTree], bool] = lambda start: False,
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
      linear: ``(start) -> bool``, whether a step only adds and scales its carry and the slope.
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
        if linear(problem.start):
            moved = linear_steps(
                loss, local, one_step, first, *constants, num_steps=problem.num_steps
            )
            return Steps(problem.start, tree.add(first, moved), moved, problem.memory)
        end = local.scan(
            lambda carry, batch: one_step(carry, batch, *constants),
            first,
            num_steps=problem.num_steps,
        )
        return Steps(problem.start, end, leave(problem.start, end), problem.memory)

    return Geometry(name, steps, start)


def primal(penalty: Penalty | None = None, *, warm_start: bool | None = None) -> Geometry:
    r"""Gradient steps :math:`w \leftarrow \mathrm{prox}_{\eta_c \psi}(w - \eta_c \, slope)`.

    A solver of local problems says with ``warm_start`` whether it starts at the client's own last
    point instead of the problem's start.
    """

    def step(hparams, w, slope, _):
        w = tree.add_scaled(w, -hparams.client_lr, slope)
        return w if penalty is None else penalty.prox(w, hparams.client_lr, hparams.penalty_scale)

    return stepping(
        "primal" if penalty is None else "primal, prox",
        step,
        enter=lambda hparams, problem: problem.last if warm_start else problem.start,
        linear=lambda start: penalty is None and warm_start is None,
    )


def mirrored(mirror: Mirror, *, prox: bool = True, extragradient: bool = False) -> Geometry:
    r"""Mirror steps :math:`w \leftarrow P_{\eta_c}(\nabla h(w) - \eta_c \, slope)`.

    Without ``prox`` they apply :math:`\nabla h^*` in place of :math:`P_t`.
    """

    def step(hparams, w, slope, _):
        z = tree.add_scaled(mirror.to_dual(w), -hparams.client_lr, slope)
        if not prox:
            return mirror.from_dual(z)
        return mirror.to_primal(z, hparams.client_lr, hparams.penalty_scale)

    def is_identity(start):
        return not prox and mirror.from_dual(mirror.to_dual(start)) is start

    name = "mirror, extra" if extragradient else "mirror, prox" if prox else "mirror"
    return stepping(name, step, linear=is_identity, extragradient=extragradient)


class DualPoint(NamedTuple):
    """A dual point z, and the total step size so far, the weight of psi in the model."""

    dual: Params
    elapsed: Array


def dual(mirror: Mirror, *, prox: bool = True, extragradient: bool = False) -> Geometry:
    r"""Dual averaging :math:`z \leftarrow z - \eta_c \, slope` with models :math:`P_T(z)`.

    Clients sum displacements from the server's :math:`(z, T)`, which grows with the rounds. Without
    ``prox`` local models are :math:`\nabla h^*(z)`.
    """

    def model(hparams, start, moved):
        point = tree.add(start, moved)
        if not prox:
            return mirror.from_dual(point.dual)
        return mirror.to_primal(point.dual, point.elapsed, hparams.penalty_scale)

    def step(hparams, moved, slope, _):
        dual = tree.add_scaled(moved.dual, -hparams.client_lr, slope)
        return DualPoint(dual, moved.elapsed + hparams.client_lr)

    def start(hparams, params):
        return DualPoint(mirror.to_dual(params), jnp.zeros_like(jnp.asarray(hparams.client_lr)))

    return stepping(
        "dual, extra" if extragradient else "dual, prox" if prox else "dual",
        step,
        model=model,
        enter=lambda hparams, problem: tree.zeros_like(problem.start),
        leave=lambda start, moved: moved.dual,
        start=start,
        extragradient=extragradient,
    )


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


def pull(
    correction: Correction | None = None,
    *,
    towards: Callable[[Params, Params], Params] | None = None,
) -> Correction:
    r"""Another correction, with the gradient of :math:`\mu |x - start|^2 / 2` added.

    On a manifold ``towards`` is the tangent vector from x to the start.
    """
    inner = none() if correction is None else correction

    def begin(hparams, message, own, local):
        problem = inner.begin(hparams, message, own, local)

        def slope(hparams, gradient, x, batch, start, *constants):
            plain = problem.slope(hparams, gradient, x, batch, *constants)
            if towards is not None:
                return tree.add_scaled(plain, -hparams.prox_scale, towards(x, start))
            return tree.add_scaled(plain, hparams.prox_scale, tree.sub(x, start))

        return problem._replace(slope=slope, constants=(problem.start, *problem.constants))

    name = "pull" if correction is None else f"pull, {inner.name}"
    return inner._replace(name=name, begin=begin)


class Message(NamedTuple):
    """The start of the local steps, and the mean gradient that corrected steps follow."""

    point: PyTree
    direction: Params


class ControlUpdate(NamedTuple):
    """What a client sends.

    Attributes:
      change: the change of its control.
      offset: its mean local gradient minus its new control; ``()`` if the two are the same.
      num_steps: how many steps it took.
    """

    change: Params
    offset: PyTree
    num_steps: Public


def control_variate(
    gradient: Callable[[Params, Batch], Params] | None = None,
) -> Correction:
    r"""Steps follow :math:`\nabla f_i + d - c_i`, with d the direction that the server sent.

    A client stores its control :math:`c_i`, the mean gradient
    :math:`s_i = (x - x_i) / (\eta_c K) - (d - c_i)` of its last local steps, and sends the change.
    With ``gradient`` it stores its full gradient at the start instead.
    """

    def begin(hparams, message, own, local):
        def slope(hparams, gradient, x, batch, correction):
            return tree.add(gradient, correction)

        return LocalProblem(message.point, slope, (tree.sub(message.direction, own),))

    def keep(hparams, message, own, local, steps):
        num_steps = count_of(hparams, local)
        # The mean of the K corrected steps; minus the correction it is the mean local gradient.
        mean = tree.scale(-1 / (hparams.client_lr * num_steps), steps.moved)
        control, offset = tree.sub(mean, tree.sub(message.direction, own)), ()
        if gradient is not None:
            local_gradient, control = control, gradient(message.point, local.full())
            offset = tree.sub(local_gradient, control)
        return control, ControlUpdate(tree.sub(control, own), offset, Public(num_steps))

    return Correction("control", begin, keep, lambda params, memory: tree.zeros_like(params))


class DualClient(NamedTuple):
    """x_i and lambda_i of the client's last round, and the memory of its solver."""

    model: Params
    dual: Params
    memory: PyTree


def augmented_slope(
    hparams: Any, gradient: Params, x: Params, batch: Batch, anchor: Params, dual: Params
) -> Params:
    r"""Return the gradient of :math:`f_i + \langle \lambda, x \rangle + |x - a|^2 / (2 \eta)`."""
    terms = tree.add_scaled(dual, 1 / hparams.prox_step, tree.sub(x, anchor))
    return tree.add(gradient, terms)


def lagrangian(
    upload: Callable[[DualClient, Params, Params], PyTree],
    relaxation: Callable[[Any], Scalar] | None = None,
) -> Correction:
    r"""Clients minimise an augmented Lagrangian, then update their duals.

    .. math:: x_i \approx \arg\min_x f_i(x) + \langle \lambda_i, x - a_i \rangle
                         + \tfrac{1}{2 \eta} |x - a_i|^2, \qquad
              \lambda_i \leftarrow \lambda_i + (x_i - a_i) / \eta,

    from the anchor :math:`a_i = x_0`, or :math:`x_i + \alpha (x_0 - x_i)` with a ``relaxation``
    alpha; ``upload`` is ``(own, x, x - a) -> upload``, with the client's state before the round.
    """

    def begin(hparams, message, own, local):
        anchor = message
        if relaxation is not None:
            relaxed = tree.scale(relaxation(hparams), tree.sub(message, own.model))
            anchor = tree.add(own.model, relaxed)
        return LocalProblem(anchor, augmented_slope, (anchor, own.dual), own.model, own.memory)

    def keep(hparams, message, own, local, steps):
        moved = tree.sub(steps.end, steps.start)
        dual = tree.add_scaled(own.dual, 1 / hparams.prox_step, moved)
        return DualClient(steps.end, dual, steps.memory), upload(own, steps.end, moved)

    def own(params, memory):
        return DualClient(params, tree.zeros_like(params), memory)

    return Correction("duals" if relaxation is None else "relaxed duals", begin, keep, own)


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


def average(rate: Callable[[Any], Scalar] = lambda hparams: hparams.server_lr) -> ServerStep:
    r"""The mean displacement: :math:`w \leftarrow w + \eta_s u`."""

    def step(hparams, w, mean, fraction, key):
        return tree.add_scaled(w, rate(hparams), mean)

    return ServerStep("average", step)


def mirror_average(mirror: Mirror, *, prox: bool = True) -> ServerStep:
    r"""One mirror step :math:`w \leftarrow P_{\eta_s e}(\nabla h(w) + \eta_s u)`, e the time."""

    def step(hparams, w, mean, fraction, key):
        z = tree.add_scaled(mirror.to_dual(w), hparams.server_lr, mean.params)
        if not prox:
            return mirror.from_dual(z)
        return mirror.to_primal(z, hparams.server_lr * mean.elapsed.value, hparams.penalty_scale)

    return ServerStep("mirror, prox" if prox else "mirror", step)


class DualSums(NamedTuple):
    """The server's dual point, and the rounding errors of its two sums so far."""

    dual: Params
    elapsed: Array
    residue: DualPoint


def dual_sums(mirror: Mirror) -> ServerStep:
    r"""Sums of the clients' mean dual displacements and step sizes; the model is :math:`P_T(z)`.

    The sums are compensated: in float32 their rounding error does not grow with the rounds.
    """

    def init(hparams, point):
        return DualSums(point.dual, point.elapsed, tree.zeros_like(point))

    def message(hparams, server):
        return DualPoint(server.dual, server.elapsed)

    def model(hparams, server):
        return mirror.to_primal(server.dual, server.elapsed, hparams.penalty_scale)

    def step(hparams, server, mean, fraction, key):
        increment = DualPoint(mean.params, mean.elapsed.value)
        sums, residue = tree.add_compensated(
            message(hparams, server), server.residue, hparams.server_lr, increment
        )
        return DualSums(sums.dual, sums.elapsed, residue)

    return ServerStep("sums, prox", step, init, message, model)


class Corrected(NamedTuple):
    """The server's state.

    Attributes:
      point: x.
      control: c, the mean of the controls of all clients.
      residue: the rounding error accumulated in c.
      subgradient: a subgradient of psi at x if it is fed back, else ``()``.
    """

    point: Params
    control: Params
    residue: Params
    subgradient: PyTree


def with_control(penalty: Penalty | None = None, *, feedback: bool = False) -> ServerStep:
    r"""A step along the mean gradient, beside the mean c of the controls of **all** clients.

    With :math:`t_e = \eta_s \eta_c K`, the clients' mean gradients :math:`s_i` and their controls,

    .. math:: v = x - t_e \Big(c + \sum_{i \in S} p_i (s_i - c_i)\Big), \qquad
              x \leftarrow \mathrm{prox}_{t_e \psi}(v),

    and c changes with the :math:`c_i`, for any cohort and any numbers of steps. For equal K this
    equals averaging the clients' last points, but terms that have converged cancel before they are
    rounded. As c is compensated, 80,000 rounds in float32 end as near the solution as 5,000. With
    ``feedback`` local steps also follow the subgradient :math:`(v - x) / t_e` of psi.
    """

    def init(hparams, params):
        zeros = tree.zeros_like(params)
        return Corrected(params, zeros, zeros, zeros if feedback else ())

    def message(hparams, server):
        direction = tree.add(server.control, server.subgradient) if feedback else server.control
        return Message(server.point, direction)

    def step(hparams, server, mean, fraction, key):
        size = hparams.server_lr * hparams.client_lr * mean.num_steps.value
        direction = tree.add(server.control, mean.change)
        if jax.tree.leaves(mean.offset):
            direction = tree.add(direction, mean.offset)
        target = point = tree.add_scaled(server.point, -size, direction)
        if penalty is not None:
            point = penalty.prox(target, size, hparams.penalty_scale)
        subgradient = tree.scale(1 / size, tree.sub(target, point)) if feedback else ()
        # A sum over all rounds of small changes: compensated, so rounding errors do not add up.
        control, residue = tree.add_compensated(
            server.control, server.residue, fraction, mean.change
        )
        return Corrected(point, control, residue, subgradient)

    name = "feedback" if feedback else "control" if penalty is None else "control, prox"
    return ServerStep(name, step, init, message, lambda hparams, server: server.point)


class Drift(NamedTuple):
    """The model x_0, the drift h, and a mean of client models if it is the model."""

    center: Params
    drift: Params
    average: PyTree


class Moves(NamedTuple):
    """An upload: x_i - x_0, and the change of x_i if the mean of all x_i is the model."""

    from_center: Params
    from_last: PyTree


def with_drift(penalty: Penalty, report: str = "server") -> ServerStep:
    r"""The cohort's mean point, moved by the drift h, the mean of the duals of **all** clients.

    .. math:: h \leftarrow h + \tfrac{1}{\eta} \sum_{i \in S} p_i (x_i - x_0), \qquad
              x_0 \leftarrow \mathrm{prox}_{\eta \psi}\Big(x_0 +
                  \frac{\sum_{i \in S} p_i (x_i - x_0)}{\sum_{i \in S} p_i} + \eta h\Big)

    The model is x_0, or the mean of the cohort's x_i, or that of the last x_i of all clients.
    """

    def init(hparams, params):
        return Drift(params, tree.zeros_like(params), () if report == "server" else params)

    def step(hparams, server, mean, fraction, key):
        drift = tree.add_scaled(server.drift, fraction / hparams.prox_step, mean.from_center)
        sampled = tree.add(server.center, mean.from_center)
        target = tree.add_scaled(sampled, hparams.prox_step, drift)
        center = penalty.prox(target, hparams.prox_step, hparams.penalty_scale)
        average = sampled if report == "sampled" else ()
        if report == "all":
            average = tree.add_scaled(server.average, fraction, mean.from_last)
        return Drift(center, drift, average)

    def model(hparams, server):
        return server.center if report == "server" else server.average

    return ServerStep("drift, prox", step, init, lambda hparams, server: server.center, model)


class Split(NamedTuple):
    """The mean of the proposals of all clients, and its prox, the model."""

    total: Params
    center: Params


def mean_of_all(penalty: Penalty | None) -> ServerStep:
    """The prox of the mean of the proposals of **all** clients, to which a cohort adds changes."""

    def step(hparams, server, mean, fraction, key):
        total = center = tree.add_scaled(server.total, fraction, mean)
        if penalty is not None:
            center = penalty.prox(total, hparams.prox_step, hparams.penalty_scale)
        return Split(total, center)

    def center(hparams, server):
        return server.center

    name = "mean of all" if penalty is None else "mean of all, prox"
    return ServerStep(name, step, lambda hparams, params: Split(params, params), center, center)


def method(
    loss: Loss,
    geometry: Geometry,
    correction: Correction,
    server_step: ServerStep,
    *,
    facts: Facts = _NO_FACTS,
) -> Algorithm:
    """Return the algorithm of three parts.

    Args:
      loss: one loss per example.
      geometry: where clients take their steps.
      correction: what a client keeps, adds to its gradients, and sends.
      server_step: what the server keeps, sends, and does.
      facts: what the method needs beside what its parts say.

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

    parts = geometry.name, correction.name, server_step.name
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
            parts=parts,
        ),
    )
