r"""FedDR: randomised Douglas-Rachford splitting.

Tran-Dinh, Pham, Phan and Nguyen, "FedDR: randomized Douglas-Rachford splitting algorithms for
nonconvex federated composite optimization", NeurIPS 2021 (arXiv 2103.03452), Algorithms 1 and 2.
"""

from typing import NamedTuple

from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.local_solvers import Solver
from fcojax.algorithms.splitting import splitting
from fcojax.problems.problem import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import Scalar


class SplittingRates(NamedTuple):
    """``client_lr`` is the local solver's step, ``prox_step`` is eta, ``relaxation`` alpha.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Scalar = 0.01
    prox_step: Scalar = 1.0
    relaxation: Scalar = 1.95
    penalty_scale: Scalar = 0.1


@takes(SplittingRates, "penalty")
def fed_dr(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    solver: Solver | None = None,
    max_delay: int = 0,
) -> Algorithm:
    r"""Randomised Douglas-Rachford splitting of the mean loss plus psi; exact, with any cohort.

    A client of the cohort S answers the server's x_0 with a relaxed anchor,

    .. math:: a_i = x_i + \alpha (x_0 - x_i), \quad
              x_i \approx \mathrm{prox}_{\eta f_i}(a_i - \eta \lambda_i), \quad
              \lambda_i \leftarrow \lambda_i + (x_i - a_i) / \eta,

    and sends how its offer :math:`m_i = x_i + \eta \lambda_i` has changed. The server keeps the
    mean of **all** clients' offers, to which it adds those changes, and
    :math:`x_0 = \mathrm{prox}_{\eta \psi}(\sum_i p_i m_i)`.

    In the paper's symbols :math:`y_i = x_i - \eta \lambda_i` and :math:`\hat x_i = m_i`. All start
    at the first model with :math:`\lambda_i = 0`, so that the mean is right in the first round: an
    offset is never forgotten. Relaxations between 0 and 2 converge for convex losses and any eta.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; none by default.
      solver: of the local problems; ``gd()`` by default.
      max_delay: clients of a round see the x_0 of up to so many rounds ago, drawn uniformly. With
        ``uniform_cohort(1)`` a round is one event of asyncFedDR with a bounded delay. The server
        of this simulation keeps so many models more.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> loss = lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2
      >>> algorithm = fcojax.algorithms.fed_dr(loss, max_delay=3)
      >>> server, client = algorithm.init(algorithm.hparams_type(relaxation=1.5), jnp.zeros(2))
      >>> server.past.shape  # the model of now, and those of three rounds before
      (4, 2)
    """
    return splitting(loss, penalty, solver, lambda hparams: hparams.relaxation, max_delay)
