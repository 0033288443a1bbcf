r"""FedOpt: an optimiser of optax on the clients and one on the server.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, "Adaptive federated
optimization", ICLR 2021, Algorithm 1.
"""

import functools
from typing import Any, NamedTuple, cast

import jax
import optax

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.optimiser import Choose, optimiser_state, optimiser_updates
from fcojax.problems.losses import Loss
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
    """
    if hparams_type is FedOptHparams:
        # A grid over an unused rate would have equal points.
        sides = {"client_lr": client, "server_lr": server}
        hparams_type = _with_rates(tuple(name for name, side in sides.items() if callable(side)))
    gradient = mean_gradient(loss)

    def init(hparams, params):
        first = Optimised(params, optimiser_state("server", server, hparams, params))
        state = optimiser_state("client", client, hparams, params)
        return first, state if keep_client_state else ()

    def broadcast(hparams, server):
        return server.params

    def client_update(hparams, message, state, local, key):
        def step(carry, batch):
            w, state = carry
            slope = gradient(w, batch)
            if proximal_term:
                slope = tree.add_scaled(slope, hparams.prox_scale, tree.sub(w, message))
            return _step("client", client, hparams, w, slope, state)

        first = state if keep_client_state else optimiser_state("client", client, hparams, message)
        end, state = local.scan(step, (message, first))
        return ClientResult(state if keep_client_state else (), tree.sub(end, message), {})

    def server_update(hparams, now, mean_upload, fraction, key):
        slope = tree.scale(-1.0, mean_upload)
        return Optimised(*_step("server", server, hparams, now.params, slope, now.state))

    def model(hparams, server):
        return server.params

    functions = init, broadcast, client_update, server_update, model
    return Algorithm(*functions, hparams_type=hparams_type)


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
