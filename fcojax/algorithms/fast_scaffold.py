r"""SCAFFOLD with a prox and Nesterov's momentum on the server: accelerated and exact.

The momentum and its restarts: Beck and Teboulle, "A fast iterative shrinkage-thresholding algorithm
for linear inverse problems", SIAM J. Imaging Sci. 2009; O'Donoghue and Candes, "Adaptive restart
for accelerated gradient schemes", Found. Comput. Math. 2015, section 3.2.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.correction import Corrected
from fcojax.algorithms.scaffold import ScaffoldHparams, scaffold
from fcojax.problems.losses import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Params


class Accelerated(NamedTuple):
    """The state of ``scaffold`` at the extrapolated point y, the model x, and the momentum.

    Attributes:
      round: the state of ``scaffold``; its point is y, where the next round starts.
      model: x.
      count: k, the number of rounds since the last restart.
    """

    round: Corrected
    model: Params
    count: Array


@takes(ScaffoldHparams, "penalty")
def fast_scaffold(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""Minimise the mean loss plus psi with ``scaffold(prox="feedback")`` and momentum; any cohort.

    With M a round of ``scaffold(prox="feedback")`` and :math:`y_0 = x_0`, one of this is

    .. math:: x_{r+1} = M(y_r), \qquad
              y_{r+1} = x_{r+1} + \frac{k}{k + 3} (x_{r+1} - x_r), \qquad k \leftarrow k + 1,

    where k starts from 0 and restarts from 0 if :math:`\langle y_r - x_{r+1}, x_{r+1} - x_r
    \rangle > 0`, that is, if the momentum points uphill. So the strong convexity need not be known.

    A fixed point of M is one of this, so the limit is the minimiser of F + psi for any K, with
    absent clients and lost uploads too. With one full-batch step and everyone it is FISTA with
    restarts, whose rounds grow as the square root of the condition number; with exact gradients the
    same is observed for local steps and for half of the clients, but not proved.

    ``prox_skip`` with K about :math:`\sqrt{L / \mu}` local steps needs as many exchanges, by a
    theorem; this needs :math:`\sqrt{L / \mu}` times fewer gradients for them. Momentum amplifies
    the noise of minibatches: use ``scaffold`` with them. It also needs the step of a round,
    :math:`\eta_s \eta_c K`, to be at most about 1 / L, half of what plain rounds allow.

    Args:
      loss: one loss per example.
      penalty: psi; none by default.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import l1
      >>> data = fcojax.from_clients(
      ...     [{"h": np.array([[1.0, 0.01]])}, {"h": np.array([[3.0, 0.01]])}])
      >>> loss = lambda x, rows: (rows["h"] * (x[None] - 1) ** 2 / 2).sum(axis=1)
      >>> for factory in (fcojax.algorithms.scaffold, fcojax.algorithms.fast_scaffold):
      ...     algorithm = factory(loss, l1())
      ...     hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=0.001)
      ...     x, _ = fcojax.run(
      ...         algorithm, hparams, jnp.zeros(2), data, jax.random.key(0),
      ...         fcojax.local_steps(4), num_rounds=150)
      ...     print(np.asarray(x).round(3))  # minimiser 0.9995, 0.9
      [0.999 0.406]
      [0.999 0.9  ]
    """
    plain = scaffold(loss, penalty, prox="feedback")

    def init(hparams, params):
        server, client = plain.init(hparams, params)
        return Accelerated(server, params, jnp.zeros_like(jnp.asarray(hparams.client_lr))), client

    def broadcast(hparams, server):
        return plain.broadcast(hparams, server.round)

    def server_update(hparams, server, mean_upload, fraction, key):
        after = plain.server_update(hparams, server.round, mean_upload, fraction, key)
        moved = tree.sub(after.point, server.model)
        uphill = tree.vdot(tree.sub(server.round.point, after.point), moved) > 0
        count = jnp.where(uphill, 0, server.count)
        ahead = tree.add_scaled(after.point, count / (count + 3), moved)
        return Accelerated(after._replace(point=ahead), after.point, count + 1)

    def model(hparams, server):
        return server.model

    return plain._replace(init=init, broadcast=broadcast, server_update=server_update, model=model)
