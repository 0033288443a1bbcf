r"""FedNMap: corrected local steps along the normal map of a composite problem.

Huang and Pu, arXiv 2602.03357, 2026, of which only the abstract was available: the normal map is
theirs, the correction of the local steps is ours.
"""

from typing import NamedTuple

from fcojax import tree
from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.correction import corrected
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Positive


class FedNormalMapHparams(NamedTuple):
    r"""``client_lr`` is eta_c, ``server_lr`` is eta_s, ``prox_step`` is gamma.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    prox_step: Positive = 0.1
    penalty_scale: NonNegative = 0.1


@takes(FedNormalMapHparams, "penalty")
def fed_normal_map(loss: Loss, penalty: Penalty) -> Algorithm:
    r"""Minimise the mean loss plus psi by steps before the prox; exact, with any cohort.

    The normal map of client i at z has a zero, on average over the clients, exactly where
    :math:`w = \mathrm{prox}_{\gamma \psi}(z)` is a solution:

    .. math:: N_i(z) = \nabla f_i(w) + (z - w) / \gamma, \qquad
              w = \mathrm{prox}_{\gamma \psi}(z).

    Clients take K steps :math:`y \leftarrow y - \eta_c (N_i(y) + c - c_i)` from z, where
    :math:`c_i` is the mean normal map of their last local steps and c the mean of all :math:`c_i`;
    the server takes :math:`z + \eta_s \sum_i p_i (y_i - z)`, and the model is
    :math:`\mathrm{prox}_{\gamma \psi}(z)`. With one local step and :math:`\eta_s \eta_c = \gamma`
    this is proximal gradient descent.

    The prox need not be convex: for a weakly convex psi, :math:`\gamma` below one over its modulus
    keeps w unique. Steps are safe for :math:`\eta_c K \le 1 / L` and :math:`\eta_c \le \gamma`.

    Args:
      loss: one loss per example.
      penalty: psi.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> loss = lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2
      >>> algorithm = fcojax.algorithms.fed_normal_map(loss, fcojax.transforms.l1())
      >>> hparams = algorithm.hparams_type(prox_step=0.5, penalty_scale=1.0)
      >>> server, client = algorithm.init(hparams, jnp.array([2.0, 0.25]))
      >>> algorithm.model(hparams, server).tolist()  # after the prox, with threshold 0.5
      [1.5, 0.0]
    """
    gradient = mean_gradient(loss)

    def prox(hparams, z):
        return penalty.prox(z, hparams.prox_step, hparams.penalty_scale)

    def local_steps(hparams, start, correction, local):
        def step(y, batch):
            w = prox(hparams, y)
            slope = tree.add(gradient(w, batch), correction)
            slope = tree.add_scaled(slope, 1 / hparams.prox_step, tree.sub(y, w))
            return tree.add_scaled(y, -hparams.client_lr, slope)

        return tree.sub(local.scan(step, start), start)

    def server_prox(hparams, target, step):
        return target

    def model(hparams, server):
        return prox(hparams, server.point)

    return corrected(local_steps, server_prox)._replace(model=model)
