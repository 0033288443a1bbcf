"""Composite FL and manifold FL as printed, with one array down and one up.

Clients recover the mean of the stored gradients from two consecutive broadcasts, which needs full
participation and equal K. In exact arithmetic the iterates are those of the library; but a rounding
error in the mean of the corrections is not damped, and in float32 it grows with the rounds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from fcojax import algorithms, tree
from fcojax.algorithms import Algorithm, ClientResult, Displacement, Facts, Public, mean_gradient
from fcojax.algorithms.base import takes
from fcojax.algorithms.parts import elapsed
from fcojax.transforms.manifolds.manifold import riemannian_gradient


class Broadcast(NamedTuple):
    """The mean before the prox or projection, and the step of the prox."""

    ambient: Any
    step: Any


class Memory(NamedTuple):
    """A client's last start, mean gradient and server step."""

    start: Any
    slope: Any
    step: Any


class Iterate(NamedTuple):
    """A client between two steps; ``farthest`` is the largest distance to its prox."""

    point: Any
    ambient: Any
    slope: Any
    step: Any
    farthest: Any


def _printed(gradient: Callable, prox: Callable) -> Algorithm:
    """Return the printed form with a gradient ``(x, batch)`` and a prox ``(hparams, x, step)``."""

    def init(hparams, params):
        none = jnp.zeros_like(jnp.asarray(hparams.client_lr))
        memory = Memory(prox(hparams, params, none), tree.zeros_like(params), none + 1)
        return Broadcast(params, none), memory

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        start = model(hparams, message)
        direction = tree.scale(1 / client.step, tree.sub(client.start, message.ambient))
        correction = tree.sub(direction, client.slope)
        steps = Public(elapsed(hparams, local))

        def step(now, batch):
            slope = gradient(now.point, batch)
            ambient = tree.add_scaled(now.ambient, -hparams.client_lr, slope + correction)
            taken = now.step + hparams.client_lr
            point = prox(hparams, ambient, taken)
            mean = tree.add_scaled(now.slope, hparams.client_lr / steps.value, slope)
            farthest = jnp.maximum(now.farthest, jnp.linalg.norm(ambient - point))
            return Iterate(point, ambient, mean, taken, farthest)

        off = jnp.linalg.norm(message.ambient - start)
        none = jnp.zeros_like(steps.value)
        end = local.scan(step, Iterate(start, start, tree.zeros_like(start), none, off))
        memory = Memory(start, end.slope, hparams.server_lr * steps.value)
        moved = Displacement(end.ambient - start, steps)
        return ClientResult(memory, moved, {"tube_distance": end.farthest})

    def server_update(hparams, server, mean_upload, fraction, key):
        start = model(hparams, server)
        ambient = tree.add_scaled(start, hparams.server_lr, mean_upload.params)
        return Broadcast(ambient, hparams.server_lr * mean_upload.elapsed.value)

    def model(hparams, server):
        return prox(hparams, server.ambient, server.step)

    return Algorithm(
        init, broadcast, client_update, server_update, model, facts=Facts(needs_everyone=True)
    )


@takes(algorithms.composite_fl.Hparams, "penalty")
def composite_fl(loss, penalty):
    def prox(hparams, v, step):
        return penalty.prox(v, step, hparams.penalty_scale)

    return _printed(mean_gradient(loss), prox)


@takes(algorithms.fed_manifold.Hparams, "manifold")
def fed_manifold(loss, manifold):
    gradient = mean_gradient(loss)
    return _printed(
        lambda x, batch: riemannian_gradient(manifold, x, gradient(x, batch)),
        lambda hparams, y, step: manifold.project(y),
    )
