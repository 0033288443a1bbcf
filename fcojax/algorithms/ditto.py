r"""Ditto: a common model, and a personal model of each client that is pulled towards it.

Li, Hu, Beirami and Smith, "Ditto: fair and robust federated learning through personalization", ICML
2021.
"""

from typing import NamedTuple

from fcojax import tree
from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.controls import scaffold
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Params, Positive


class DittoHparams(NamedTuple):
    r"""``client_lr`` is eta_c, ``server_lr`` is eta_s, ``prox_scale`` is :math:`\lambda`.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    prox_scale: NonNegative = 1.0
    penalty_scale: NonNegative = 0.1


class DittoClient(NamedTuple):
    """A client's control variate, and its personal model."""

    control: Params
    model: Params


@takes(DittoHparams, "penalty")
def ditto(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""The minimiser x of the mean loss plus psi, and personal models near it.

    .. math:: v_i = \arg\min_v \; f_i(v) + \psi(v) + \tfrac{\lambda}{2} |v - x|^2

    The model x is that of ``scaffold(loss, penalty, prox="feedback")``, so it is exact with any
    cohort; the paper takes FedAvg, which has no penalty. In each of its rounds a client then takes
    as many steps on its personal model, implicit in the quadratic term,

    .. math:: v_i \leftarrow \mathrm{prox}_{\eta_c (\psi + \lambda/2 |\cdot - x|^2)}
              \big(v_i - \eta_c \nabla f_i(v_i)\big),

    so that a rate that is safe for :math:`f_i` is safe for every :math:`\lambda`. With
    :math:`\lambda = 0` clients learn alone; for :math:`\lambda \to \infty` all use x. Personal
    models are read by ``fcojax.personal.read_models``; nothing more is sent than without them.

    Args:
      loss: one loss per example.
      penalty: psi, in the common problem and in the personal ones; none by default.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"a": np.zeros(1)}, {"a": 4 * np.ones(1)}])
      >>> algorithm = fcojax.algorithms.ditto(lambda x, rows: (x - rows["a"]) ** 2 / 2)
      >>> hparams = algorithm.hparams_type(client_lr=0.5, prox_scale=1.0)
      >>> plan = fcojax.local_steps(5)
      >>> state = fcojax.start(algorithm, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> state, _ = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=50)
      >>> print(fcojax.personal.read_models(algorithm, hparams, state).round(2))  # x is 2
      [1. 3.]
    """
    common = scaffold(loss, penalty, prox="feedback")
    gradient, penalty = mean_gradient(loss), penalty or zero()

    def init(hparams, params):
        server, control = common.init(hparams, params)
        return server, DittoClient(control, params)

    def client_update(hparams, message, client, local, key):
        shared = common.client_update(hparams, message, client.control, local, key)
        center, rate = message.point, hparams.client_lr
        shrink = 1 / (1 + rate * hparams.prox_scale)

        def step(v, batch):
            # The prox of the sum of psi and the quadratic term is a prox of psi at a mean of v and
            # x. In this form it moves from x by a multiple of v - x: as the strength grows, v is x
            # to the last bit.
            moved = tree.add_scaled(v, -rate, gradient(v, batch))
            between = tree.add_scaled(center, shrink, tree.sub(moved, center))
            return penalty.prox(between, rate * shrink, hparams.penalty_scale)

        model = local.scan(step, client.model)
        return shared._replace(state=DittoClient(shared.state, model))

    def client_model(hparams, message, client):
        return client.model

    return common._replace(init=init, client_update=client_update, client_model=client_model)
