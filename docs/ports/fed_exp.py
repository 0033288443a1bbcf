"""FedExP: FedAvg with a server step that grows with the clients' disagreement.

Jhunjhunwala, Wang and Joshi, "FedExP: speeding up federated averaging via
extrapolation", ICLR 2023 (arXiv 2301.09604), Algorithm 1. With d_i the
displacements of the clients of a cohort and p_i their weights, the step is

    eta_s = max(1, sum_i p_i |d_i|^2 / (2 (|sum_i p_i d_i|^2 + epsilon))).

The more the directions cancel, the longer it is. Iterates oscillate, and the
source reports the mean of the last two; the ``"last"`` one has the zeros of the
prox, which is ours. Local steps bias the limit, as for FedAvg.
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms import (
    Algorithm,
    ClientResult,
    Displacement,
    Public,
    linear_steps,
    mean_gradient,
    takes,
)
from fcojax.transforms import zero
from fcojax.types import NonNegative, Positive


class Hparams(NamedTuple):
    """The clients' step, epsilon, and the strength of the penalty."""

    client_lr: Positive = 0.01
    epsilon: NonNegative = 1e-3
    penalty_scale: NonNegative = 0.1


class Server(NamedTuple):
    """The last point, and the one before it if the model is their mean."""

    point: object
    previous: object


@takes(Hparams, "penalty")
def fed_exp(
    loss, penalty=None, *, report: Literal["average", "last"] = "average"
):
    """Take w to prox(w + eta_s mean d_i), with eta_s eta_c K as its step."""
    gradient, penalty = mean_gradient(loss), penalty or zero()
    averages = report == "average"

    def init(hparams, params):
        return Server(params, params if averages else ()), ()

    def broadcast(hparams, server):
        return server.point

    def client_update(hparams, message, client, local, key):
        def step(w, batch):
            return tree.add_scaled(w, -hparams.client_lr, gradient(w, batch))

        moved = linear_steps(loss, local, step, message)
        rate = jnp.asarray(hparams.client_lr)
        elapsed = Public(local.num_steps.astype(rate.dtype) * rate)
        # The norm depends on the client's data, so it is compressed as well.
        upload = Displacement(moved, elapsed), tree.vdot(moved, moved)
        return ClientResult(client, upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        (mean, elapsed), squares = mean_upload
        squared = tree.vdot(mean, mean)
        agreement = 2 * (squared + jnp.asarray(hparams.epsilon, squared.dtype))
        rate = jnp.maximum(1, squares / agreement)
        size = rate.astype(elapsed.value.dtype) * elapsed.value
        target = tree.add_scaled(server.point, rate, mean)
        point = penalty.prox(target, size, hparams.penalty_scale)
        return Server(point, server.point if averages else ())

    def model(hparams, server):
        if not averages:
            return server.point
        return tree.scale(0.5, tree.add(server.point, server.previous))

    return Algorithm(init, broadcast, client_update, server_update, model)
