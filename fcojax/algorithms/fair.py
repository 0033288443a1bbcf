r"""Fair federated averaging: clients with a larger loss weigh more.

Li, Sanjabi, Beirami and Smith, "Fair resource allocation in federated learning", ICLR 2020.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.linear_steps import linear_steps
from fcojax.algorithms.local import mean_gradient, mean_loss
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Params, Positive


class QFedAvgHparams(NamedTuple):
    """``client_lr`` is eta, ``power`` is q, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    power: NonNegative = 1.0
    penalty_scale: NonNegative = 0.1


class Weighted(NamedTuple):
    """A client's mean step, a weight times a gradient, and the inverse of the server's step."""

    slope: Params
    inverse: Public


_SMALLEST = 1e-12  # a loss of zero would be divided by


@takes(QFedAvgHparams, "penalty")
def q_fed_avg(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""q-FedAvg with a penalty, for losses that are not negative.

    .. math:: \min_w \sum_i p_i \frac{f_i(w)^{q + 1}}{q + 1} + \psi(w)

    After K steps of size :math:`\eta` a client has the mean gradient :math:`g_i`; the server's step
    is the inverse of an estimate of the curvature of the objective,

    .. math:: w^+ = \mathrm{prox}_{\psi / h} \Big(w - \frac1h \sum_i p_i f_i^q g_i\Big), \qquad
              h = \sum_i p_i \Big(q f_i^{q-1} |g_i|^2 + \frac{f_i^q}{K \eta}\Big).

    With q = 0 it is ``fed_mid_osp`` with a Euclidean mirror. The weights are powers of the losses
    at w, which takes one more pass over a client's examples; they bypass what happens to uploads.

    Args:
      loss: one loss per example, not negative.
      penalty: psi; none by default.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([0.0, 0.0, 3.0])}, [1, 1, 1])
      >>> algorithm = fcojax.algorithms.q_fed_avg(lambda w, rows: (w - rows["a"]) ** 2 / 2)
      >>> for power in (0.0, 1.0, 10.0):  # the mean, and towards the midpoint
      ...     w, _ = fcojax.run(
      ...         algorithm, algorithm.hparams_type(client_lr=0.5, power=power), jnp.array(1.0),
      ...         data, jax.random.key(0), fcojax.local_steps(1), num_rounds=200)
      ...     print(round(float(w), 2))
      1.0
      1.33
      1.48
    """
    gradient, value, psi = mean_gradient(loss), mean_loss(loss), penalty or zero()

    def client_update(hparams, message, client, local, key):
        def step(w, batch):
            return tree.add_scaled(w, -hparams.client_lr, gradient(w, batch))

        moved = linear_steps(loss, local, step, message)
        rate = jnp.asarray(hparams.client_lr)
        elapsed = rate * local.num_steps.astype(rate.dtype)
        level = jnp.maximum(value(message, local.full()).astype(elapsed.dtype), _SMALLEST)
        power = jnp.asarray(hparams.power, elapsed.dtype)
        weight = level**power
        slope = tree.scale(-1 / elapsed, moved)
        square = tree.vdot(slope, slope).astype(elapsed.dtype)
        curvature = power * weight / level * square
        upload = Weighted(tree.scale(weight, slope), Public(curvature + weight / elapsed))
        return ClientResult(client, upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        step = 1 / mean_upload.inverse.value
        target = tree.add_scaled(server, -step, mean_upload.slope)
        return psi.prox(target, step, hparams.penalty_scale)

    return Algorithm(
        init=lambda hparams, params: (params, ()),
        broadcast=lambda hparams, server: server,
        client_update=client_update,
        server_update=server_update,
        model=lambda hparams, server: server,
    )
