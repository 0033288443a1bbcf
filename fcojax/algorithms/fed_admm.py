r"""FedADMM: the alternating direction method of multipliers, with clients that may be absent.

Wang, Marella and Anderson, "FedADMM: a federated primal-dual algorithm allowing partial
participation", CDC 2022 (arXiv 2203.15104).
"""

from typing import NamedTuple

from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.fed_dr import splitting
from fcojax.algorithms.local_solvers import Solver
from fcojax.problems.losses import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Positive


class FedADMMHparams(NamedTuple):
    """``client_lr`` is the local solver's step; ``prox_step`` is eta.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    penalty_scale: NonNegative = 0.1


@takes(FedADMMHparams, "penalty")
def fed_admm(
    loss: Loss, penalty: Penalty | None = None, *, solver: Solver | None = None
) -> Algorithm:
    r"""Minimise the mean loss plus psi, exactly, with any cohort S and inexact local solves.

    .. math:: x_i \approx \arg\min_x f_i(x) + \langle \lambda_i, x - x_0 \rangle
                         + \tfrac{1}{2 \eta} |x - x_0|^2, \qquad
              \lambda_i \leftarrow \lambda_i + (x_i - x_0) / \eta

    for the clients of S, and :math:`x_0 = \mathrm{prox}_{\eta \psi}(\sum_i p_i (x_i + \eta
    \lambda_i))` over **all** clients, whose changes the server sums. This is ``fed_dr`` without
    relaxation; with full participation it is ``fed_pd`` without skipping. One vector goes up and
    one down; a client stores two, :math:`x_i` and :math:`\lambda_i`.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; none by default.
      solver: the solver of the local problems; ``gd()`` by default.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2  # minimiser with |x|: 2
      >>> algorithm = fcojax.algorithms.fed_admm(loss, fcojax.transforms.l1())
      >>> hparams = algorithm.hparams_type(client_lr=0.2, prox_step=1.0, penalty_scale=1.0)
      >>> plan, key = fcojax.local_steps(3), jax.random.key(0)
      >>> x, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=100)
      >>> round(float(x), 3)
      2.0

    References:
      Gong, Li and Freris, "FedADMM: a robust federated deep learning framework with adaptivity to
      system heterogeneity", ICDE 2022 (arXiv 2204.03529), is the same for psi = 0 and the server
      step of its analysis.
    """
    return splitting(loss, penalty, solver, lambda hparams: 1.0)
