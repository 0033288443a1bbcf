"""Skeleton of an algorithm: local gradient steps and a prox on the server."""

from typing import NamedTuple

from fcojax import tree
from fcojax.algorithms import (
    Algorithm,
    ClientResult,
    Displacement,
    Public,
    mean_gradient,
    takes,
)
from fcojax.types import NonNegative, Positive


class MyHparams(NamedTuple):
    """Numbers that a sweep may vary; annotations state the allowed values."""

    client_lr: Positive = 0.01
    penalty_scale: NonNegative = 0.1


@takes(MyHparams, "penalty")
def my_method(loss, penalty):
    """Return the algorithm for a loss and a penalty."""
    gradient = mean_gradient(loss)

    def init(hparams, params):
        return params, ()  # the states of the server and of one client (none)

    def broadcast(hparams, server):
        return server  # everything that is sent to the clients

    def client_update(hparams, message, client, local, key):
        def step(params, batch):
            return tree.add_scaled(
                params, -hparams.client_lr, gradient(params, batch)
            )

        moved = tree.sub(
            local.scan(step, message), message
        )  # a difference: zero is no change
        num_steps = Public(local.num_steps.astype(float))  # not transformed
        return ClientResult(client, Displacement(moved, num_steps), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        # Scale the prox by the total step size of the gradient steps before it.
        time = hparams.client_lr * mean_upload.elapsed.value
        moved = tree.add(server, mean_upload.params)
        return penalty.prox(moved, time, hparams.penalty_scale)

    def model(hparams, server):
        return server  # the parameters that one would deploy

    return Algorithm(init, broadcast, client_update, server_update, model)
