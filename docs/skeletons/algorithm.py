"""Skeleton of an algorithm: local gradient steps and a prox on the server."""

from typing import NamedTuple

from fcojax import tree
from fcojax.algorithms import takes
from fcojax.algorithms.parts import ServerStep, elapsed, method, none, primal
from fcojax.types import NonNegative, Positive


class MyHparams(NamedTuple):
    """Numbers that a sweep may vary; annotations state the allowed values."""

    client_lr: Positive = 0.01
    penalty_scale: NonNegative = 0.1


def my_server_step(penalty):
    """Return the part of the server; the others are those of FedAvg."""

    def step(hparams, params, mean, fraction, key):
        # Scale the prox by the total step size of the gradient steps before it.
        time = mean.elapsed.value
        moved = tree.add(params, mean.params)
        return penalty.prox(moved, time, hparams.penalty_scale)

    return ServerStep("average, prox", step)


@takes(MyHparams, "penalty")
def my_method(loss, penalty):
    """Return the algorithm for a loss and a penalty."""
    return method(loss, primal(), none(elapsed), my_server_step(penalty))
