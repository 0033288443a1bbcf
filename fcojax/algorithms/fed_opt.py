r"""FedOpt: any optimiser on the clients, any on the server, with a penalty where it can be.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, "Adaptive federated
optimization", ICLR 2021, Algorithm 1. Their adaptive methods are next door.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from fcojax import tree
from fcojax.algorithms import optimisers
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.fed_avg import PenalisedRates
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.stepping import Side
from fcojax.problems.problem import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import Params, PyTree

Choose = Callable[[Any], optimisers.Optimiser | optax.GradientTransformation]


class Optimised(NamedTuple):
    """The model, and the state of the server's optimiser."""

    params: Params
    state: PyTree


class Displacement(NamedTuple):
    """What a client sends: how far it moved, and if the server has a prox its sum of steps."""

    params: Params
    elapsed: PyTree


def plain_client(hparams: Any) -> optimisers.Optimiser:
    """Gradient steps of ``client_lr``."""
    return optimisers.sgd(hparams.client_lr)


def plain_server(hparams: Any) -> optimisers.Optimiser:
    """Gradient steps of ``server_lr``."""
    return optimisers.sgd(hparams.server_lr)


@takes(PenalisedRates, "penalty")
def fed_opt(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    server: Choose = plain_server,
    client: Choose = plain_client,
    hparams: type = PenalisedRates,
    keep_client_state: bool = False,
    client_prox: bool = False,
    server_prox: bool = True,
    proximal_term: bool = False,
) -> Algorithm:
    r"""Federated learning with an optimiser on the clients and one on the server.

    A client takes its local steps from :math:`w_r` with its own optimiser; the server takes one
    with its optimiser, for which minus the mean displacement is the gradient:

    .. math:: w^m_{k+1} = \mathrm{step}_c\big(w^m_k, \nabla f(w^m_k; \xi^m_k)\big), \qquad
              w_{r+1} = \mathrm{step}_s\Big(w_r, -\sum_m p_m (w^m_K - w_r)\Big).

    An optimiser is chosen by a function of the hyperparameters, so its numbers are traced and
    sweep; so may be those of an optax schedule in it, which counts steps taken: on the server the
    rounds in which it stepped. By default both sides take plain steps of ``client_lr`` and
    ``server_lr``, which is FedAvg.

    Psi enters by a prox in the metric of the optimiser, for which it has to be one of
    ``fcojax.algorithms.optimisers``: with a rate for every entry, for sums over entries alone.
    On the server its weight is the mean time :math:`\sum_m p_m \eta_c K_m`, with the momentum that
    the gradient has, so with one full local step and everyone the model tends to the minimiser of
    F + psi. Two sites apply psi twice, as in ``fed_mid``.

    Args:
      loss: one loss per example.
      penalty: psi; none by default.
      server: ``(hparams) -> optimiser``, of optax or of ``fcojax.algorithms.optimisers``.
      client: likewise.
      hparams: the type of the hyperparameters that the two functions read.
      keep_client_state: whether a client's optimiser remembers its last round; otherwise it starts
        anew in each.
      client_prox: whether local steps apply the penalty.
      server_prox: whether the server's step does; the clients' steps then have to be plain.
      proximal_term: whether clients also descend :math:`(\mu / 2) |w - w_r|^2`, with mu the
        ``prox_scale``; see ``fed_prox``.

    Example:
      >>> import optax
      >>> class Numbers(NamedTuple):
      ...     client_lr: float = 0.1
      ...     server_lr: float = 0.01
      ...     b1: float = 0.9
      >>> algorithm = fed_opt(
      ...     lambda w, rows: (w - rows["a"]) ** 2, hparams=Numbers, keep_client_state=True,
      ...     client=lambda hparams: optax.sgd(hparams.client_lr, momentum=0.5),
      ...     server=lambda hparams: optax.lion(hparams.server_lr, b1=hparams.b1))
      >>> algorithm.hparams_type is Numbers
      True
    """
    server_prox, client_prox = (
        penalty is not None and asked for asked in (server_prox, client_prox)
    )
    _check_penalty(penalty, client, client_prox, server_prox)
    _check_fields(hparams, server, client, penalty, proximal_term)
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
        elapsed = ()
        if server_prox:
            client_lr = jnp.asarray(hparams.client_lr)
            elapsed = Public(local.num_steps.astype(client_lr.dtype) * client_lr)
        moved = Displacement(tree.sub(end, message), elapsed)
        return ClientResult(state if keep_client_state else (), moved, {})

    def server_update(hparams, server, mean_upload, cohort, key):
        time = mean_upload.elapsed.value if server_prox else 1.0
        slope = tree.scale(-1.0, mean_upload.params)
        return Optimised(*servers.step(hparams, server.params, slope, time, server.state))

    def model(hparams, server):
        return server.params

    functions = init, broadcast, client_update, server_update, model
    return Algorithm(*functions, entrywise=client is plain_client and not client_prox)


def _check_penalty(
    penalty: Penalty | None, client: Choose, client_prox: bool, server_prox: bool
) -> None:
    if penalty is not None and not client_prox and not server_prox:
        raise ValueError(
            "a penalty was given but neither client_prox nor server_prox; pass one of the two as "
            "True, or no penalty."
        )
    if server_prox and client is not plain_client:
        raise ValueError(
            "server_prox=True weighs the penalty by the sum of local steps, and the clients have "
            "an optimiser of their own; pass server_prox=False with client_prox=True, or no client."
        )


def _check_fields(
    hparams: Any, server: Choose, client: Choose, penalty: Penalty | None, proximal_term: bool
) -> None:
    needed = {
        "client_lr": client is plain_client,
        "server_lr": server is plain_server,
        "penalty_scale": penalty is not None,
        "prox_scale": proximal_term,
    }
    missing = [field for field, asked in needed.items() if asked and field not in hparams._fields]
    if missing:
        raise ValueError(
            f"{hparams.__name__} has no field {missing[0]}, which these arguments need; "
            f"give it one, as in fcojax.extended({hparams.__name__}, 'Mine', {missing[0]}=0.1)."
        )
