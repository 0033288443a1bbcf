"""Manifold FL as printed, with one array down and one up.

Clients recover the mean of the stored gradients from two consecutive broadcasts, which needs full
participation and equal K. In exact arithmetic the iterates are those of the library; a rounding
error in the mean of the corrections is not damped.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from fcojax import algorithms, tree
from fcojax.algorithms import Algorithm, ClientResult, Displacement, Facts, Public, mean_gradient
from fcojax.algorithms.base import takes
from fcojax.algorithms.parts import elapsed
from fcojax.transforms.manifolds.manifold import riemannian_gradient


class Memory(NamedTuple):
    """A client's last start, mean gradient and server step."""

    start: Any
    slope: Any
    step: Any


class Iterate(NamedTuple):
    """A client between two steps; ``farthest`` is the largest distance to its projection."""

    point: Any
    ambient: Any
    slope: Any
    farthest: Any


@takes(algorithms.fed_manifold.Hparams, "manifold")
def fed_manifold(loss, manifold):
    plain = mean_gradient(loss)

    def init(hparams, params):
        start, one = model(hparams, params), jnp.ones_like(jnp.asarray(hparams.client_lr))
        return params, Memory(start, tree.zeros_like(params), one)

    def client_update(hparams, message, client, local, key):
        start = model(hparams, message)
        direction = tree.scale(1 / client.step, tree.sub(client.start, message))
        correction = tree.sub(direction, client.slope)
        steps = Public(elapsed(hparams, local))

        def step(now, batch):
            slope = riemannian_gradient(manifold, now.point, plain(now.point, batch))
            ambient = tree.add_scaled(now.ambient, -hparams.client_lr, slope + correction)
            point = manifold.project(ambient)
            mean = tree.add_scaled(now.slope, hparams.client_lr / steps.value, slope)
            farthest = jnp.maximum(now.farthest, jnp.linalg.norm(ambient - point))
            return Iterate(point, ambient, mean, farthest)

        off = jnp.linalg.norm(message - start)
        end = local.scan(step, Iterate(start, start, tree.zeros_like(start), off))
        memory = Memory(start, end.slope, hparams.server_lr * steps.value)
        moved = Displacement(end.ambient - start, steps)
        return ClientResult(memory, moved, {"tube_distance": end.farthest})

    def server_update(hparams, server, mean_upload, fraction, key):
        return tree.add_scaled(model(hparams, server), hparams.server_lr, mean_upload.params)

    def model(hparams, server):
        return manifold.project(server)

    return Algorithm(
        init,
        lambda hparams, server: server,
        client_update,
        server_update,
        model,
        facts=Facts(needs_everyone=True),
    )
