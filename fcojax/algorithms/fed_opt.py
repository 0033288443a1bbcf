r"""FedOpt: any optimiser on the clients and any on the server, with a penalty where possible.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, "Adaptive federated
optimization", ICLR 2021, Algorithm 1. Their adaptive methods are in ``server_optimisers``.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from fcojax import tree
from fcojax.algorithms import optimisers
from fcojax.algorithms.base import Algorithm, ClientResult, Displacement, elapsed, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.stepping import Chosen, Side
from fcojax.arguments import field_annotations
from fcojax.problems.losses import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Params, Positive, PyTree

Choose = Chosen | Callable[[Any], Chosen]


class FedOptHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1


class Optimised(NamedTuple):
    """The model, and the state of the server's optimiser."""

    params: Params
    state: PyTree


def plain_client(hparams: Any) -> optimisers.Optimiser:
    """Gradient steps of ``client_lr``."""
    return optimisers.sgd(hparams.client_lr)


def plain_server(hparams: Any) -> optimisers.Optimiser:
    """Gradient steps of ``server_lr``."""
    return optimisers.sgd(hparams.server_lr)


@takes(cast(Any, FedOptHparams), "penalty")  # the caller may choose another type
def fed_opt(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    server: Choose = plain_server,
    client: Choose = plain_client,
    hparams_type: type = FedOptHparams,
    keep_client_state: bool = False,
    client_prox: bool = False,
    server_prox: bool = True,
    proximal_term: bool = False,
) -> Algorithm:
    r"""Federated learning with an optimiser on the clients and one on the server.

    A client takes its local steps from :math:`w_r` with its own optimiser; the server takes one
    step with its optimiser, whose gradient is minus the mean displacement:

    .. math:: w^m_{k+1} = \mathrm{step}_c\big(w^m_k, \nabla f(w^m_k; \xi^m_k)\big), \qquad
              w_{r+1} = \mathrm{step}_s\Big(w_r, -\sum_m p_m (w^m_K - w_r)\Big).

    An optimiser is passed as it is, and reads no hyperparameter, or as a function of the
    hyperparameters, so that its numbers are traced and can be swept. So can those of an optax
    schedule in it, which counts the steps taken: on the server, the rounds that had an upload. By
    default both sides take gradient steps of ``client_lr`` and ``server_lr``, which is FedAvg.

    Psi enters by a prox in the metric of the optimiser, which therefore has to be one of
    ``fcojax.algorithms.optimisers``; with one rate per entry, psi has to be a sum over entries, or
    a norm, group norm or ball of l2.
    On the server its weight is :math:`\sum_m p_m \eta_c K_m`, with the momentum of the gradient, so
    with one full local step and everyone the model converges to the minimiser of F + psi. A prox on
    both sides applies psi twice, as in ``fed_mid``.

    Args:
      loss: one loss per example.
      penalty: psi; none by default.
      server: the server's optimiser, from optax or ``fcojax.algorithms.optimisers``, or
        ``(hparams) -> optimiser``.
      client: the same for the clients.
      hparams_type: the type of the hyperparameters that functions for the two read; by default
        ``client_lr``, ``server_lr`` and ``penalty_scale``, without the rate of a side whose
        optimiser is passed as it is.
      keep_client_state: whether a client's optimiser keeps its state from round to round; otherwise
        it is initialised in each.
      client_prox: whether local steps apply the penalty.
      server_prox: whether the server's step applies it; clients then have to take gradient steps.
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
    server_prox, client_prox = (
        penalty is not None and applies for applies in (server_prox, client_prox)
    )
    if hparams_type is FedOptHparams:
        sides = {"client_lr": client, "server_lr": server}
        hparams_type = _without(tuple(name for name, side in sides.items() if not callable(side)))
    _check_penalty(penalty, client, client_prox, server_prox)
    _check_fields(hparams_type, server, client, penalty, proximal_term)
    clients = Side("client", client, penalty if client_prox else None)
    servers = Side("server", server, penalty if server_prox else None)
    gradient = mean_gradient(loss)

    def init(hparams, params):
        first = Optimised(params, servers.init(hparams, params))
        state = clients.init(hparams, params)
        return first, state if keep_client_state else ()

    def broadcast(hparams, server):
        return server.params

    def client_update(hparams, message, client, local, key):
        def step(carry, batch):
            w, state = carry
            slope = gradient(w, batch)
            if proximal_term:
                slope = tree.add_scaled(slope, hparams.prox_scale, tree.sub(w, message))
            return clients.step(hparams, w, slope, 1.0, state)

        first = client if keep_client_state else clients.init(hparams, message)
        end, state = local.scan(step, (message, first))
        steps = elapsed(local, hparams.client_lr) if server_prox else ()
        moved = Displacement(tree.sub(end, message), steps)
        return ClientResult(state if keep_client_state else (), moved, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        weight = mean_upload.elapsed.value if server_prox else 1.0
        slope = tree.scale(-1.0, mean_upload.params)
        return Optimised(*servers.step(hparams, server.params, slope, weight, server.state))

    def model(hparams, server):
        return server.params

    functions = init, broadcast, client_update, server_update, model
    return Algorithm(*functions, hparams_type=hparams_type)


@functools.cache
def _without(unread: tuple[str, ...]) -> type:
    """Return ``FedOptHparams`` without the rates that no optimiser reads."""
    if not unread:
        return FedOptHparams
    kinds, defaults = field_annotations(FedOptHparams), FedOptHparams._field_defaults
    read = [name for name in FedOptHparams._fields if name not in unread]
    fields = [(name, kinds[name]) for name in read]
    made: Any = NamedTuple("FedOptHparams", fields)  # pyright: ignore[reportArgumentType]
    made.__new__.__defaults__ = tuple(defaults[name] for name in read)
    made._field_defaults = {name: defaults[name] for name in read}
    return made


def _check_penalty(
    penalty: Penalty | None, client: Choose, client_prox: bool, server_prox: bool
) -> None:
    if penalty is not None and not client_prox and not server_prox:
        raise ValueError(
            "client_prox and server_prox are False, so the penalty has no effect; pass one of them "
            "as True, or no penalty."
        )
    if server_prox and client is not plain_client:
        raise ValueError(
            "server_prox is True, which needs gradient steps on the clients, but client is given; "
            "pass server_prox=False with client_prox=True, or no client."
        )


def _check_fields(
    hparams_type: Any, server: Choose, client: Choose, penalty: Penalty | None, proximal_term: bool
) -> None:
    needed = {
        "client_lr": client is plain_client,
        "server_lr": server is plain_server,
        "penalty_scale": penalty is not None,
        "prox_scale": proximal_term,
    }
    fields, name = hparams_type._fields, hparams_type.__name__
    missing = [field for field, reads in needed.items() if reads and field not in fields]
    if missing:
        raise ValueError(
            f"{name} has no field {missing[0]}, which these arguments need; "
            f"add it, as in fcojax.extended({name}, 'Mine', {missing[0]}=0.1)."
        )
