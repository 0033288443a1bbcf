r"""FedProx: FedAvg with a proximal term that keeps clients near the model they received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated optimization in heterogeneous networks",
MLSys 2020.
"""

from typing import NamedTuple

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.fed_avg import fed_avg
from fcojax.algorithms.linear_steps import linear_steps
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Positive


class FedProxHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``prox_scale`` is mu.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    prox_scale: NonNegative = 0.1
    penalty_scale: NonNegative = 0.1


@takes(FedProxHparams, "penalty")
def fed_prox(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""FedProx: clients take steps on their own objective plus a proximal term.

    .. math:: \min_w \; f_m(w) + \psi(w) + \tfrac{\mu}{2} |w - w_r|^2, \qquad
              w_{r+1} = w_r + \eta_s \sum_{m \in S_r} p_m (w^m_K - w_r)

    A local step is :math:`w \leftarrow \mathrm{prox}_{\eta_c \psi}(w - \eta_c (\nabla f_m(w) +
    \mu (w - w_r)))`; the engine's ``work`` fixes their number, which may differ between clients.
    With mu = 0 it is FedAvg, or FedMiD without its server's prox. The term reduces the drift of
    clients but does not remove it: there are no control variates, so the error of the limit is of
    the order of ``client_lr``. The model is a mean of sparse models, and so it is dense.

    For the term with another optimiser, use ``fed_opt(..., proximal_term=True)``.

    Args:
      loss: one loss per example.
      penalty: psi, applied after each local step; none by default.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2  # pooled minimiser 10 / 4
      >>> algorithm = fcojax.algorithms.fed_prox(loss)
      >>> for prox_scale in (0.0, 10.0):  # without the term, and with it
      ...     x, _ = fcojax.run(
      ...         algorithm, algorithm.hparams_type(client_lr=0.05, prox_scale=prox_scale),
      ...         jnp.array(0.0), data, jax.random.key(0), fcojax.local_steps(20), num_rounds=100)
      ...     print(round(float(x), 2))
      2.2
      2.43
    """
    gradient = mean_gradient(loss)

    def client_update(hparams, message, client, local, key):
        def step(w, batch, anchor):
            pull = tree.sub(w, anchor)
            slope = tree.add_scaled(gradient(w, batch), hparams.prox_scale, pull)
            moved = tree.add_scaled(w, -hparams.client_lr, slope)
            if penalty is None:
                return moved
            return penalty.prox(moved, hparams.client_lr, hparams.penalty_scale)

        if penalty is None:
            return ClientResult(client, linear_steps(loss, local, step, message, message), {})
        end = local.scan(lambda w, batch: step(w, batch, message), message)
        return ClientResult(client, tree.sub(end, message), {})

    return fed_avg(loss)._replace(client_update=client_update)
