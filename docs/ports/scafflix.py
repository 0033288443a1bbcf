"""Scafflix: clients mix a common model with the one that they learn alone.

Gasanov, Khaled, Horvath and Richtarik, "FLIX", AISTATS 2022, for the problem

    min_x sum_i p_i f_i(alpha x + (1 - alpha) x_i*) + psi(x),
    x_i* in argmin f_i + psi,

and Yi, Condat and Richtarik, "Explicit personalization and local training",
TMLR 2025 (arXiv 2305.13170), for the method: ``prox_skip`` on this problem with
a step client_lr phi_i of each client. With delta_i = K times this step

    x+ = prox of delta psi at delta sum_i p_i b_i / delta_i,
    1 / delta = sum_i p_i / delta_i.

The sources compute x_i* first and have no psi; here clients take K proximal
gradient steps towards it beside those on x. It is exact with any cohort.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms import (
    Algorithm,
    ClientResult,
    Public,
    mean_gradient,
    takes,
)
from fcojax.transforms import zero
from fcojax.types import NonNegative, Positive, Share


class Hparams(NamedTuple):
    """The step, alpha, and the strength of psi."""

    client_lr: Positive = 0.01
    share: Share = 0.5
    penalty_scale: NonNegative = 0.1


@takes(Hparams, "penalty")
def scafflix(loss, penalty=None, *, step_factors=(1.0,)):
    """Take steps of the factors phi_i, one for each client; by default all 1.

    They may be inverse smoothness constants, divided by the largest one.
    """
    gradient, penalty = mean_gradient(loss), penalty or zero()
    if min(step_factors) <= 0:
        raise ValueError("a step factor is not positive; pass positive ones.")

    def mixture(hparams, x, own):
        mixed = tree.scale(hparams.share, x)
        return tree.add_scaled(mixed, 1 - hparams.share, own)

    def init(hparams, params):  # b_i / phi_i and 1 / phi_i, and their means
        anchor = params, jnp.ones_like(jnp.asarray(hparams.client_lr))
        return (params, anchor), (anchor, params)

    def model(hparams, server):  # also what clients are sent
        return server[0]

    def client_update(hparams, message, client, local, key):
        if not local.all_steps_equal:
            raise ValueError("clients take unequal steps; pass local_steps(K).")
        (point, inverse), alone = client
        rate = jnp.asarray(hparams.client_lr)
        factor = jnp.asarray(step_factors, rate.dtype)[local.client]
        rate, num_steps = rate * factor, local.num_steps.astype(rate.dtype)
        control = tree.add_scaled(message, -1 / inverse, point)
        control = tree.scale(1 / (rate * num_steps), control)

        def step(carry, batch):
            x, own = carry  # the mixture is with the own model of last round
            slope = gradient(mixture(hparams, x, alone), batch)
            slope = tree.sub(tree.scale(hparams.share, slope), control)
            own = tree.add_scaled(own, -rate, gradient(own, batch))
            own = penalty.prox(own, rate, hparams.penalty_scale)
            return tree.add_scaled(x, -rate, slope), own

        end, alone = local.scan(step, (message, alone))
        b = tree.add_scaled(tree.sub(end, message), 1 / inverse, point)
        anchor = tree.scale(1 / factor, b), 1 / factor
        moved, change = tree.sub(anchor, (point, inverse))
        upload = moved, Public(change), Public(num_steps)
        return ClientResult((anchor, alone), upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        (_, (point, inverse)), (moved, change, num_steps) = server, mean_upload
        weight = inverse + change.value
        target = tree.scale(1 / weight, tree.add(point, moved))
        size = hparams.client_lr * num_steps.value / weight
        center = penalty.prox(target, size, hparams.penalty_scale)
        point = tree.add_scaled(point, fraction, moved)
        return center, (point, inverse + fraction * change.value)

    def client_model(hparams, message, client):
        return mixture(hparams, message, client[1])

    plain = Algorithm(init, model, client_update, server_update, model)
    num_clients = len(step_factors) if len(step_factors) > 1 else None
    facts = plain.facts._replace(num_clients=num_clients)
    return plain._replace(client_model=client_model, facts=facts)
