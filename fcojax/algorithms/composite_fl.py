r"""Composite federated learning with heterogeneous data: averaging before the prox.

Zhang, Hu and Johansson, "Composite federated learning with heterogeneous data", ICASSP 2024
(arXiv 2309.01795), Algorithm 1.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.correction import corrected
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive


class CompositeFLHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1


class Iterate(NamedTuple):
    """A client between two steps: the point before the prox, after it, and the steps so far."""

    ambient: Params
    point: Params
    step: Array


@takes(CompositeFLHparams, "penalty")
def composite_fl(loss: Loss, penalty: Penalty) -> Algorithm:
    r"""Minimise the mean loss plus psi, exactly, with K local proximal steps and any cohort.

    From :math:`\hat z_0 = z_0 = x` and with correction :math:`c_i` a client takes K steps

    .. math:: \hat z_{t+1} = \hat z_t - \eta_c (\nabla f_i(z_t) + c_i), \qquad
              z_{t+1} = \mathrm{prox}_{(t+1) \eta_c \psi}(\hat z_{t+1}),

    and the server averages the points *before* the prox, which keeps the model sparse:

    .. math:: x \leftarrow \mathrm{prox}_{t_e \psi}\Big(
                  x + \eta_s \sum_i p_i (\hat z_K^i - x)\Big), \qquad t_e = \eta_s \eta_c K.

    The prox of local step t has the step :math:`(t+1) \eta_c`, without :math:`\eta_s`: at the
    solution x with :math:`c_i = \nabla F(x) - \nabla f_i(x)` the points :math:`z_t` then stay at x.

    Clients store the mean gradient :math:`E_i` of their last steps, the server the mean of all, and
    :math:`c_i = \sum_j p_j E_j - E_i`. One vector goes up and two go down; a client stores one. The
    published form sends one vector down, from which clients recover :math:`\sum_j p_j E_j`; nothing
    damps a rounding error in the mean of its :math:`c_i`, which grows with the rounds in float32.

    Args:
      loss: one loss per example.
      penalty: psi.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2
      >>> algorithm = fcojax.algorithms.composite_fl(loss, fcojax.transforms.l1())
      >>> hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=1.0)
      >>> plan, key = fcojax.local_steps(2), jax.random.key(0)
      >>> x, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=100)
      >>> round(float(x), 3)  # the mean of (x - 1)^2 / 2 and 3 (x - 3)^2 / 2, plus |x|
      2.0
    """
    gradient = mean_gradient(loss)

    def prox(hparams, v, step):
        return penalty.prox(v, step, hparams.penalty_scale)

    def local_steps(hparams, start, correction, local):
        def step(now, batch):
            slope = tree.add(gradient(now.point, batch), correction)
            ambient = tree.add_scaled(now.ambient, -hparams.client_lr, slope)
            count = now.step + 1
            return Iterate(ambient, prox(hparams, ambient, count * hparams.client_lr), count)

        none = jnp.zeros_like(jnp.asarray(hparams.client_lr))
        return tree.sub(local.scan(step, Iterate(start, start, none)).ambient, start)

    return corrected(local_steps, server_prox=prox)
