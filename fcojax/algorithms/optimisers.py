"""FedAvg, FedDualAvg and FedMiD with optimisers of optax on the clients and on the server."""

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from fcojax import tree
from fcojax.algorithms.averages import fed_mid, mirror_average, pull
from fcojax.algorithms.base import Algorithm, Displacement, Public, takes
from fcojax.algorithms.dual_averages import (
    DualPoint,
    dual,
    dual_sums,
    fed_dual_avg,
)
from fcojax.algorithms.frame import Geometry, ServerStep, Steps, method, none
from fcojax.algorithms.local import mean_gradient
from fcojax.arguments import factory, shown
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.types import Array, Params, Positive, PyTree

# An optimiser, whose numbers are fixed, or a function of the hyperparameters that returns one.
Choose = optax.GradientTransformation | Callable[[Any], optax.GradientTransformation]


class FedOptHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0


class Optimised(NamedTuple):
    """The model, and the state of the server's optimiser."""

    params: Params
    state: PyTree


@takes(cast(Any, FedOptHparams))  # the caller may choose another type
def fed_opt(
    loss: Loss,
    *,
    server: Choose = lambda hparams: optax.sgd(hparams.server_lr),
    client: Choose = lambda hparams: optax.sgd(hparams.client_lr),
    hparams_type: type = FedOptHparams,
    keep_client_state: bool = False,
    proximal_term: bool = False,
) -> Algorithm:
    r"""Federated learning with an optimiser on the clients and one on the server.

    Clients take local steps from :math:`w_r`; the server's gradient is minus the mean displacement:

    .. math:: w^m_{k+1} = \mathrm{step}_c\big(w^m_k, \nabla f(w^m_k; \xi^m_k)\big), \qquad
              w_{r+1} = \mathrm{step}_s\Big(w_r, -\sum_m p_m (w^m_K - w_r)\Big).

    The numbers of an optimiser are fixed; those of a function of the hyperparameters that returns
    one are traced and can be swept. An optax schedule in it counts the steps taken: on the server,
    the rounds that had an upload. By default both sides take gradient steps of ``client_lr`` and
    ``server_lr``, which is FedAvg.

    The model is the point that the server's optimiser updates; if the optimiser also keeps an
    average, as ``optax.contrib.schedule_free`` does, the average is in ``state.server.state``. A
    client optimiser that draws noise is refused, because all clients would draw the same noise from
    its seed, and one that needs the loss, such as a line search. Steps and states have the widest
    dtype of the model, at least float32; only the model is rounded to its own dtypes.

    With a penalty, see ``fed_dual_avg_opt``, ``fed_mid_opt``, and ``fed_da`` in an adaptive metric.

    Args:
      loss: one loss per example.
      server: the server's optimiser, or ``(hparams) -> optimiser``.
      client: the same for the clients.
      hparams_type: the type of the hyperparameters that the two functions read; by default with
        ``client_lr`` and ``server_lr``, but not the rate of a side that is given an optimiser.
      keep_client_state: whether a client's optimiser keeps its state between rounds.
      proximal_term: whether clients also minimise :math:`(\mu / 2) |w - w_r|^2`, with mu the
        ``prox_scale``; see ``fed_prox``.

    Example:
      >>> import fcojax, optax
      >>> algorithm = fcojax.algorithms.fed_opt(
      ...     None, server=lambda hparams: optax.adam(hparams.server_lr), client=optax.sgd(0.1))
      >>> algorithm.hparams_type._fields
      ('server_lr',)

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
    """Steps of an optimiser, or of ``(hparams) -> optimiser``, in the primal.

    With ``keep_state`` a client keeps the optimiser's state between rounds.
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
    """One step of an optimiser, or of ``(hparams) -> optimiser``, along the mean displacement."""

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
    made: Any = namedtuple("FedOptHparams", names, defaults=[defaults[name] for name in names])
    made.__annotations__ = dict.fromkeys(names, Positive)
    return made


def optimiser_state(side: str, chosen: Choose, hparams: Any, params: Params) -> PyTree:
    """Return the state of an optimiser before its first step."""
    dtype = widest_dtype(params)
    with jax.numpy_dtype_promotion("standard"):
        optimiser = _optimiser(side, chosen, hparams, dtype)
        state = optimiser.init(as_dtype(params, dtype))
    if side == "client" and any(map(_is_key, jax.tree_util.tree_leaves_with_path(state))):
        raise ValueError(
            "the optimiser of the client draws random numbers from a seed, which would be the same "
            "for all clients; pass one without noise, and add noise with the plan's aggregator."
        )
    return state


def optimiser_updates(
    side: str, chosen: Choose, hparams: Any, w: Params, gradient: Params, state: PyTree
) -> tuple[Params, PyTree]:
    """Return what an optimiser adds to w, and its next state; both in the widest dtype of w."""
    dtype = widest_dtype(w)
    wide, gradient = as_dtype((w, gradient), dtype)
    # Optax raises traced decays to integer powers, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        optimiser = _optimiser(side, chosen, hparams, dtype)
        return optimiser.update(gradient, state, wide)


def _is_key(entry: tuple[tuple, Any]) -> bool:
    """Return whether a leaf of an optimiser's state is a PRNG key, typed or of plain integers."""
    path, leaf = entry
    is_typed = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    return is_typed or getattr(path[-1] if path else None, "name", "") == "rng_key"


def _optimiser(side: str, chosen: Choose, hparams: Any, dtype: Any) -> optax.GradientTransformation:
    if callable(chosen):
        chosen = chosen(as_dtype(hparams, dtype))
    if not isinstance(chosen, optax.GradientTransformation):
        raise ValueError(
            f"the optimiser of the {side} is {shown(chosen)}; pass one from optax, as in "
            f"{side}=optax.adam(0.01), or a function of hparams that returns one, as in "
            f"{side}=lambda h: optax.adam(h.{side}_lr)."
        )
    return chosen


def widest_dtype(params: Params) -> Any:
    """Return the widest dtype of a model's leaves, at least float32."""
    dtypes = [tree.mean_dtype(jnp.result_type(leaf)) for leaf in jax.tree.leaves(params)]
    return max(dtypes, key=lambda dtype: jnp.finfo(dtype).bits)


def as_dtype(numbers: PyTree, dtype: Any) -> PyTree:
    """Return the numbers, with floating-point ones in the given dtype."""

    def in_dtype(number):
        number = jnp.asarray(number)
        return number.astype(dtype) if jnp.issubdtype(number.dtype, jnp.floating) else number

    return jax.tree.map(in_dtype, numbers)


class Beside(NamedTuple):
    """The server's state, a subgradient of psi at its model, and the state of its optimiser."""

    inner: PyTree
    subgradient: Params
    state: PyTree


class Corrected(NamedTuple):
    """An optimiser's step, as a slope whose gradient step it is, and its next state.

    ``pace`` is the weight of psi in this step, in units of its weight in a gradient step.
    """

    slope: Params
    pace: Array
    state: PyTree


def corrected(
    side: str,
    chosen: Choose,
    hparams: Any,
    slope: Params,
    subgradient: Params,
    w: Params,
    state: PyTree,
) -> Corrected:
    """Return the step of an optimiser, with rate 1, beside a penalty.

    The slope is the gradient of F, or minus a displacement; the subgradient is that of psi at w, in
    the same units.
    """
    ahead = as_dtype(tree.add(slope, subgradient), widest_dtype(w))
    updates, state = optimiser_updates(side, chosen, hparams, w, ahead, state)
    # The ray is followed as fast as the optimiser steps. If Adam took steps of 1,000 gradients
    # beside a weight of one, entries would jump over the interval in which they are zero.
    norms = tree.euclidean_norm(updates), tree.euclidean_norm(ahead)
    moves = (norms[0] > 0) & (norms[1] > 0)
    pace = jnp.where(moves, norms[0] / jnp.where(moves, norms[1], 1), 1)
    # For gradient steps `updates` is minus `ahead` and the pace 1: the slope keeps its bits.
    rest = tree.add(tree.add(updates, ahead), tree.scale(pace - 1, subgradient))
    return Corrected(jax.tree.map(lambda g, r: g - r.astype(g.dtype), slope, rest), pace, state)


def server_optimised(
    algorithm: Algorithm,
    chosen: Choose,
    subgradient: Callable[[Any, PyTree, PyTree, PyTree], Params],
    *,
    sends_subgradient: bool = False,
) -> Algorithm:
    """Return an algorithm that uploads a ``Displacement``, with an optimiser in the server's step.

    ``subgradient`` is ``(hparams, before, mean_upload, after) -> s``, one of psi at the model of
    the server's state ``after``; with ``sends_subgradient`` clients get ``(message, s)``.
    """

    def init(hparams, params):
        inner, client = algorithm.init(hparams, params)
        w = algorithm.model(hparams, inner)
        state = optimiser_state("server", chosen, hparams, w)
        return Beside(inner, tree.zeros_like(w), state), client

    def broadcast(hparams, server):
        message = algorithm.broadcast(hparams, server.inner)
        return (message, server.subgradient) if sends_subgradient else message

    def server_update(hparams, server, mean_upload, fraction, key):
        w = algorithm.model(hparams, server.inner)
        share = tree.scale(mean_upload.elapsed.value, server.subgradient)
        slope = tree.scale(-1.0, mean_upload.params)
        step = corrected("server", chosen, hparams, slope, share, w, server.state)
        spent = step.pace.astype(mean_upload.elapsed.value.dtype) * mean_upload.elapsed.value
        upload = Displacement(tree.scale(-1.0, step.slope), Public(spent))
        inner = algorithm.server_update(hparams, server.inner, upload, fraction, key)
        return Beside(inner, subgradient(hparams, server.inner, upload, inner), step.state)

    def model(hparams, server):
        return algorithm.model(hparams, server.inner)

    return algorithm._replace(
        init=init, broadcast=broadcast, server_update=server_update, model=model
    )


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

    A dual point is :math:`z = \nabla h(w) + T s`, with s a subgradient of psi at the model w. A
    gradient step is :math:`-\eta g = \eta s - \eta (g + s)`, of which the first part is a move
    along the ray on which the model stays. The optimiser takes the place of the second alone, and T
    grows as fast as it steps. As :math:`g + s` vanishes at the minimiser of F + psi, the fixed
    points stay, for every optimiser, penalty and mirror. An optimiser of g would need a prox in its
    own metric, which optax does not tell.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      server: an optax optimiser with rate 1, or ``(hparams) -> optimiser``; its step is multiplied
        by ``server_lr``. ``None`` for gradient steps.
      client: the same for local steps and ``client_lr``; it starts anew in each round. Clients that
        scale their gradients differently have another limit.
      client_prox: as in ``fed_dual_avg``.

    Example:
      >>> import fcojax, optax
      >>> from fcojax.transforms import euclidean, l1
      >>> algorithm = fcojax.algorithms.fed_dual_avg_opt(
      ...     lambda w, rows: (w - rows["a"]) ** 2, euclidean(l1()), client=optax.adam(1.0))
      >>> algorithm.facts.parts
      ('dual, prox, optax', 'none', 'sums, prox')
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
        made = method(loss, geometry, correction, dual_sums(mirror))
        plain = made._replace(hparams_type=plain.hparams_type)
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
    of psi that its last prox has found, and there is no local prox: ``client_prox`` must be false.

    Example:
      >>> import fcojax, optax
      >>> from fcojax.transforms import euclidean, l1
      >>> algorithm = fcojax.algorithms.fed_mid_opt(
      ...     lambda w, rows: (w - rows["a"]) ** 2, euclidean(l1()), client_prox=False,
      ...     client=optax.adam(1.0))
      >>> algorithm.facts.parts
      ('mirror, optax', 'none', 'mirror, prox')
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
        made = method(loss, geometry, correction, mirror_average(mirror))
        plain = made._replace(hparams_type=plain.hparams_type)
    # A gradient step on the server changes nothing, and keeps the subgradient for the clients.
    chosen = _GRADIENT_STEP if server is None else server
    return server_optimised(plain, chosen, subgradient, sends_subgradient=client is not None)
