r"""FedADMM: the alternating direction method of multipliers, with clients that may be absent.

Wang, Marella and Anderson, "FedADMM: a federated primal-dual algorithm allowing partial
participation", CDC 2022 (arXiv 2203.15104).
"""

from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.fed_dyn import ProximalRates
from fcojax.algorithms.local_solvers import Solver
from fcojax.algorithms.splitting import splitting
from fcojax.problems.problem import Loss
from fcojax.transforms.penalty import Penalty


@takes(ProximalRates, "penalty")
def fed_admm(
    loss: Loss, penalty: Penalty | None = None, *, solver: Solver | None = None
) -> Algorithm:
    r"""Minimises the mean loss plus psi, exactly, with any cohort S and inexact local solves.

    .. math:: x_i \approx \arg\min_x f_i(x) + \langle \lambda_i, x - x_0 \rangle
                         + \tfrac{1}{2 \eta} |x - x_0|^2, \qquad
              \lambda_i \leftarrow \lambda_i + (x_i - x_0) / \eta

    for the clients of S, and :math:`x_0 = \mathrm{prox}_{\eta \psi}(\sum_i p_i (x_i + \eta
    \lambda_i))` over **all** clients, whose changes the server adds up. This is ``fed_dr`` without
    relaxation, and with everyone it is ``fed_pd`` without skipping.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; none by default.
      solver: of the local problems; ``gd()`` by default.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_admm))
      >>> cost.up, cost.state, cost.needs_everyone  # a client keeps x_i and lambda_i
      ('1 d', '2 d', False)

    References:
      Gong, Li and Freris, "FedADMM: a robust federated deep learning framework with adaptivity to
      system heterogeneity", ICDE 2022 (arXiv 2204.03529), is the same for psi = 0 and the server
      step of its analysis.
    """
    return splitting(loss, penalty, solver, lambda hparams: 1.0)
