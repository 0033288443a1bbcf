"""FedAvg, FedDualAvg and FedMiD with optimisers of optax on the clients and on the server."""

import functools
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from fcojax import tree
from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.mirror_and_dual import fed_dual_avg, fed_mid
from fcojax.algorithms.optimiser import (
    Choose,
    corrected,
    optimiser_state,
    optimiser_updates,
    server_optimised,
)
from fcojax.algorithms.parts import (
    DualPoint,
    Geometry,
    ServerStep,
    Steps,
    dual,
    dual_sums,
    method,
    mirror_average,
    none,
    pull,
)
from fcojax.arguments import factory
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.types import Params, Positive, PyTree


class FedOptHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0


class Optimised(NamedTuple):
    """The model, and the state of the server's optimiser."""

    params: Params
    state: PyTree


def plain_client(hparams: Any) -> optax.GradientTransformation:
    """Return gradient steps of size ``client_lr``."""
    return optax.sgd(hparams.client_lr)


def plain_server(hparams: Any) -> optax.GradientTransformation:
    """Return gradient steps of size ``server_lr``."""
    return optax.sgd(hparams.server_lr)


@takes(cast(Any, FedOptHparams))  # the caller may choose another type
def fed_opt(
    loss: Loss,
    *,
    server: Choose = plain_server,
    client: Choose = plain_client,
    hparams_type: type = FedOptHparams,
    keep_client_state: bool = False,
    proximal_term: bool = False,
) -> Algorithm:
    r"""Federated learning with an optimiser on the clients and one on the server.

    A client takes its local steps from :math:`w_r` with its own optimiser; the server takes one
    step with its optimiser, whose gradient is minus the mean displacement:

    .. math:: w^m_{k+1} = \mathrm{step}_c\big(w^m_k, \nabla f(w^m_k; \xi^m_k)\big), \qquad
              w_{r+1} = \mathrm{step}_s\Big(w_r, -\sum_m p_m (w^m_K - w_r)\Big).

    Pass an optimiser, whose numbers are fixed, or a function of the hyperparameters that returns
    one, whose numbers are traced and can be swept. An optax schedule in it counts the steps taken:
    on the server, the rounds that had an upload. By default both sides take gradient steps of
    ``client_lr`` and ``server_lr``, which is FedAvg.

    The model is the point that the server's optimiser updates; if the optimiser also keeps an
    average, as ``optax.contrib.schedule_free`` does, the average is in ``state.server.state``. A
    client optimiser that draws noise is refused, because all clients would draw the same noise from
    its seed. One that needs the loss, such as a line search, is refused as well.

    It takes no penalty. ``fed_dual_avg_opt`` and ``fed_mid_opt`` take one, and ``fed_da`` in an
    adaptive metric.

    Steps and states have the widest dtype of the model, at least float32; only the model is rounded
    to its own dtypes.

    Args:
      loss: one loss per example.
      server: the server's optimiser, or ``(hparams) -> optimiser``.
      client: the same for the clients.
      hparams_type: the type of the hyperparameters that the two functions read. By default it has
        ``client_lr`` and ``server_lr``, but not the rate of a side that is given an optimiser
        instead of a function.
      keep_client_state: whether a client's optimiser keeps its state between rounds, beginning with
        the state of the start point; otherwise every round initialises it.
      proximal_term: whether clients also minimise :math:`(\mu / 2) |w - w_r|^2`, with mu the
        ``prox_scale``; see ``fed_prox``.

    Example:
      >>> import optax
      >>> class Numbers(NamedTuple):
      ...     client_lr: float = 0.1
      ...     server_lr: float = 0.01
      ...     b1: float = 0.9
      >>> algorithm = fed_opt(
      ...     lambda w, rows: (w - rows["a"]) ** 2, hparams_type=Numbers, keep_client_state=True,
      ...     client=lambda hparams: optax.sgd(hparams.client_lr, momentum=0.5),
      ...     server=lambda hparams: optax.lion(hparams.server_lr, b1=hparams.b1))
      >>> algorithm.hparams_type is Numbers
      True

    References:
      Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, "Adaptive federated
      optimization", ICLR 2021, Algorithm 1.
    """
    if hparams_type is FedOptHparams:
        # A grid over an unused rate would have equal points.
        sides = {"client_lr": client, "server_lr": server}
        hparams_type = _with_rates(tuple(name for name, side in sides.items() if callable(side)))
    geometry = optimised_steps(client, keep_state=keep_client_state)
    correction = pull() if proximal_term else none()
    algorithm = method(loss, geometry, correction, optimised_average(server))
    return algorithm._replace(hparams_type=hparams_type)


def optimised_steps(chosen: Choose, *, keep_state: bool = False) -> Geometry:
    """Steps of an optimiser in the primal.

    Args:
      chosen: the optimiser, or ``(hparams) -> optimiser``.
      keep_state: whether a client keeps the optimiser's state between rounds.
    """

    def memory(hparams, params):
        state = optimiser_state("client", chosen, hparams, params)
        return state if keep_state else ()

    def steps(loss, hparams, problem, local):
        gradient = mean_gradient(loss)

        def step(carry, batch):
            w, state = carry
            slope = problem.slope(hparams, gradient(w, batch), w, batch, *problem.constants)
            return _step("client", chosen, hparams, w, slope, state)

        state = problem.memory
        if not keep_state:
            state = optimiser_state("client", chosen, hparams, problem.start)
        end, state = local.scan(step, (problem.start, state))
        moved = tree.sub(end, problem.start)
        return Steps(problem.start, end, moved, state if keep_state else ())

    return Geometry("primal, optax", steps, memory=memory)


def optimised_average(chosen: Choose) -> ServerStep:
    """One step of an optimiser, whose gradient is minus the mean displacement.

    Args:
      chosen: the optimiser, or ``(hparams) -> optimiser``.
    """

    def init(hparams, params):
        return Optimised(params, optimiser_state("server", chosen, hparams, params))

    def step(hparams, now, mean, fraction, key):
        slope = tree.scale(-1.0, mean)
        return Optimised(*_step("server", chosen, hparams, now.params, slope, now.state))

    def params(hparams, server):
        return server.params

    return ServerStep("average, optax", step, init, params, params)


def _step(
    side: str, chosen: Choose, hparams: Any, w: Params, gradient: Params, state: PyTree
) -> tuple[Params, PyTree]:
    """Return the point after one step from w, and the optimiser's next state."""
    updates, state = optimiser_updates(side, chosen, hparams, w, gradient, state)
    return jax.tree.map(lambda x, u: (x.astype(u.dtype) + u).astype(x.dtype), w, updates), state


@functools.cache
def _with_rates(names: tuple[str, ...]) -> type:
    """Return ``FedOptHparams`` with only these fields."""
    defaults = FedOptHparams._field_defaults
    if names == FedOptHparams._fields:
        return FedOptHparams
    fields = [(name, Positive) for name in names]
    made: Any = NamedTuple("FedOptHparams", fields)  # pyright: ignore[reportArgumentType]
    made.__new__.__defaults__ = tuple(defaults[name] for name in names)
    made._field_defaults = {name: defaults[name] for name in names}
    return made


_GRADIENT_STEP: Choose = optax.sgd(1.0)


@factory
def fed_dual_avg_opt(
    loss: Loss,
    mirror: Mirror,
    *,
    server: Choose | None = None,
    client: Choose | None = None,
    client_prox: bool = True,
) -> Algorithm:
    r"""``fed_dual_avg`` with an optimiser on the server, on the clients, or on both.

    A dual point is :math:`z = \nabla h(w) + T s`, with s a subgradient of psi at the model w. An
    optimiser gets what moves the model, a gradient plus s, and T grows as fast as it steps. This
    vanishes at a fixed point of ``fed_dual_avg``, so the fixed points stay.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      server: an optax optimiser with rate 1, or ``(hparams) -> optimiser``; its step is multiplied
        by ``server_lr``. ``None`` for gradient steps.
      client: the same for local steps and ``client_lr``; it starts anew in each round. Clients that
        scale their gradients differently have another limit.
      client_prox: as in ``fed_dual_avg``.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np, optax
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([[1.0, 0.9], [3.0, -0.9]])}, sizes=[1, 1])
      >>> algorithm = fcojax.algorithms.fed_dual_avg_opt(
      ...     lambda w, rows: ((w[None] - rows["a"]) ** 2 / 2).sum(axis=1), euclidean(l1()),
      ...     server=optax.adam(1.0, eps=1e-3))
      >>> hparams = algorithm.hparams_type(client_lr=0.1, server_lr=0.02, penalty_scale=0.5)
      >>> w, _ = fcojax.run(
      ...     algorithm, hparams, jnp.zeros(2), data, jax.random.key(0), fcojax.local_steps(3),
      ...     num_rounds=400)
      >>> print(w.round(2))
      [1.5 0. ]
    """
    plain = fed_dual_avg(loss, mirror, client_prox=client_prox)
    local_optimiser = _GRADIENT_STEP if client is None else client
    geometry = dual(mirror, prox=client_prox)

    def subgradient(hparams, point):
        """Return the subgradient of psi at the model of a dual point; zero before any step."""
        excess = tree.sub(point.dual, mirror.to_dual(plain.model(hparams, point)))
        return tree.scale(1 / jnp.where(point.elapsed > 0, point.elapsed, jnp.inf), excess)

    def steps(loss, hparams, problem, local):
        gradient = mean_gradient(loss)
        start = problem.start
        s = subgradient(hparams, start)

        def step(carry, batch):
            moved, state = carry
            point = tree.add(start, moved)
            w = plain.model(hparams, point) if client_prox else mirror.from_dual(point.dual)
            slope = gradient(w, batch)
            found = corrected("client", local_optimiser, hparams, slope, s, w, state)
            spent = found.pace.astype(moved.elapsed.dtype) * hparams.client_lr
            dual = tree.add_scaled(moved.dual, -hparams.client_lr, found.slope)
            return DualPoint(dual, moved.elapsed + spent), found.state

        state = optimiser_state("client", local_optimiser, hparams, plain.model(hparams, start))
        end, _ = local.scan(step, (tree.zeros_like(start), state))
        return Steps(start, end, end.dual, ())

    if client is not None:
        geometry = geometry._replace(name=f"{geometry.name}, optax", steps=steps)
        correction = none(lambda hparams, local, steps: steps.end.elapsed)
        plain = method(loss, geometry, correction, dual_sums(mirror))._replace(
            hparams_type=plain.hparams_type
        )
    if server is None:
        return plain
    return server_optimised(
        plain, server, lambda hparams, before, mean_upload, after: subgradient(hparams, after)
    )


@factory
def fed_mid_opt(
    loss: Loss,
    mirror: Mirror,
    *,
    server: Choose | None = None,
    client: Choose | None = None,
    client_prox: bool = True,
) -> Algorithm:
    """``fed_mid`` with an optimiser on the server, on the clients, or on both.

    See ``fed_dual_avg_opt``. For an optimiser of the clients, the server also sends the subgradient
    of psi that its last prox has found, and there is no local prox.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      server: an optax optimiser with rate 1, or ``(hparams) -> optimiser``.
      client: the same for local steps.
      client_prox: as in ``fed_mid``; has to be false with an optimiser of the clients.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np, optax
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([2.0, 4.0])}, sizes=[1, 1])
      >>> algorithm = fcojax.algorithms.fed_mid_opt(
      ...     lambda w, rows: (w - rows["a"]) ** 2 / 2, euclidean(l1()), client_prox=False,
      ...     server=optax.adam(1.0, eps=1e-3))
      >>> hparams = algorithm.hparams_type(client_lr=0.1, server_lr=0.3, penalty_scale=0.5)
      >>> w, _ = fcojax.run(
      ...     algorithm, hparams, jnp.zeros(()), data, jax.random.key(0), fcojax.local_steps(1),
      ...     num_rounds=300)
      >>> round(float(w), 2)  # the mean of 2 and 4, soft thresholded at 0.5
      2.5
    """
    if client is not None and client_prox:
        raise ValueError(
            "client is given with client_prox=True; a local prox would need the metric of the "
            "optimiser, so pass client_prox=False, or use fed_dual_avg_opt."
        )
    plain = fed_mid(loss, mirror, client_prox=client_prox)
    local_optimiser = _GRADIENT_STEP if client is None else client

    def steps(loss, hparams, problem, local):
        gradient = mean_gradient(loss)
        start, s = problem.start

        def step(carry, batch):
            w, spent, state = carry
            slope = gradient(w, batch)
            found = corrected("client", local_optimiser, hparams, slope, s, w, state)
            spent += found.pace.astype(spent.dtype) * hparams.client_lr
            z = tree.add_scaled(mirror.to_dual(w), -hparams.client_lr, found.slope)
            return mirror.from_dual(z), spent, found.state

        none_spent = jnp.zeros_like(jnp.asarray(hparams.client_lr))
        state = optimiser_state("client", local_optimiser, hparams, start)
        end, spent, _ = local.scan(step, (start, none_spent, state))
        return Steps(start, (end, spent), tree.sub(end, start), ())

    def subgradient(hparams, before, mean_upload, after):
        """Return the subgradient of psi at the model that the prox of this round found."""
        z = tree.add_scaled(mirror.to_dual(before), hparams.server_lr, mean_upload.params)
        step = hparams.server_lr * mean_upload.elapsed.value
        return tree.scale(1 / step, tree.sub(z, mirror.to_dual(after)))

    if client is None and server is None:
        return plain
    if client is not None:
        geometry = Geometry("mirror, optax", steps)
        correction = none(lambda hparams, local, steps: steps.end[1])
        plain = method(loss, geometry, correction, mirror_average(mirror))._replace(
            hparams_type=plain.hparams_type
        )
    # A gradient step on the server changes nothing, and keeps the subgradient for the clients.
    chosen = _GRADIENT_STEP if server is None else server
    return server_optimised(plain, chosen, subgradient, sends_subgradient=client is not None)
