r"""Composite federated learning with heterogeneous data: corrected walks, averaged before the prox.

Zhang, Hu and Johansson, "Composite federated learning with heterogeneous data", ICASSP 2024
(arXiv 2309.01795), Algorithm 1.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.correction import corrected
from fcojax.algorithms.fed_avg import PenalisedRates
from fcojax.algorithms.fed_mid import Displacement
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.problem import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Params


class Walk(NamedTuple):
    """A client between two steps: before the prox, behind it, and how many steps it took."""

    ambient: Params
    point: Params
    step: Array


class PreProximal(NamedTuple):
    """The published server's state and message: the mean before the prox, and the prox's step."""

    ambient: Params
    length: Array


class Memory(NamedTuple):
    """The published client's memory: its last round's start, mean slope and server step."""

    start: Params
    slope: Params
    length: Array


@takes(PenalisedRates, "penalty")
def composite_fl(loss: Loss, penalty: Penalty, *, literal: bool = False) -> Algorithm:
    r"""Minimises the mean loss plus psi, exactly, with K local proximal steps and any cohort.

    From :math:`\hat z_0 = z_0 = x` and with correction :math:`c_i` a client takes K steps

    .. math:: \hat z_{t+1} = \hat z_t - \eta_c (\nabla f_i(z_t) + c_i), \qquad
              z_{t+1} = \mathrm{prox}_{(t+1) \eta_c \psi}(\hat z_{t+1}),

    and the server averages what is *before* the prox, which keeps the model sparse:

    .. math:: x \leftarrow \mathrm{prox}_{t_e \psi}\Big(
                  x + \eta_s \sum_i p_i (\hat z_K^i - x)\Big), \qquad t_e = \eta_s \eta_c K.

    The prox of local step t has the step :math:`(t+1) \eta_c`, without :math:`\eta_s`: at the
    solution x a client with the right :math:`c_i = \nabla F(x) - \nabla f_i(x)` then stands still.

    Clients remember the mean gradient :math:`E_i` of their last walk, the server the mean of all,
    and :math:`c_i = \sum_j p_j E_j - E_i`. One vector goes up and two go down.

    Args:
      loss: one loss per example.
      penalty: psi.
      literal: as published, :math:`c_i = (x - \bar x^+) / t_e - E_i` from the :math:`\bar x^+`
        that the server broadcasts before its prox: one vector down, but everyone has to take part
        with equal K. The same iterates in exact arithmetic. Nothing damps a rounding error in the
        mean of these :math:`c_i`, and in float32 it grows with the rounds.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.composite_fl))
      >>> cost.down, cost.up, cost.state  # in models of d numbers, and numbers beyond
      ('2 d', '1 d + 1', '1 d')
    """
    gradient = mean_gradient(loss)

    def prox(hparams, v, step):
        return penalty.prox(v, step, hparams.penalty_scale)

    def walk(hparams, start, correction, local):
        def step(now, batch):
            slope = tree.add(gradient(now.point, batch), correction)
            ambient = tree.add_scaled(now.ambient, -hparams.client_lr, slope)
            count = now.step + 1
            return Walk(ambient, prox(hparams, ambient, count * hparams.client_lr), count)

        none = jnp.zeros_like(jnp.asarray(hparams.client_lr))
        return local.scan(step, Walk(start, start, none)).ambient

    def land(hparams, target, length):
        return prox(hparams, target, length)

    if not literal:
        return corrected(walk, land)

    def init(hparams, params):
        none = jnp.zeros_like(jnp.asarray(hparams.client_lr))
        return PreProximal(params, none), Memory(params, tree.zeros_like(params), none + 1)

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        start = model(hparams, message)
        moved = tree.scale(1 / client.length, tree.sub(client.start, message.ambient))
        correction = tree.sub(moved, client.slope)
        end = walk(hparams, start, correction, local)
        length = local.num_steps.astype(client.length.dtype) * hparams.client_lr
        slope = tree.sub(tree.scale(1 / length, tree.sub(start, end)), correction)
        length = hparams.server_lr * length
        moved = Displacement(tree.sub(end, start), Public(length))
        return ClientResult(Memory(start, slope, length), moved, {})

    def server_update(hparams, server, mean_upload, cohort, key):
        start = model(hparams, server)
        ambient = tree.add_scaled(start, hparams.server_lr, mean_upload.params)
        return PreProximal(ambient, mean_upload.elapsed.value)

    def model(hparams, server):
        return prox(hparams, server.ambient, server.length)

    return Algorithm(init, broadcast, client_update, server_update, model, needs_everyone=True)
