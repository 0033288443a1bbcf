r"""FedSplit: Peaceman-Rachford splitting.

Pathak and Wainwright, "FedSplit: an algorithmic framework for fast federated optimization",
NeurIPS 2020.
"""

from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.fed_dyn import ProximalRates
from fcojax.algorithms.local_solvers import Solver
from fcojax.algorithms.splitting import splitting
from fcojax.problems.problem import Loss


@takes(ProximalRates)
def fed_split(loss: Loss, *, solver: Solver | None = None) -> Algorithm:
    r"""Minimises a smooth and strongly convex mean loss, with everyone and no penalty.

    Clients answer with :math:`x_i = \mathrm{prox}_{s f_i}(2 x_0 - z_i)` and move
    :math:`z_i \leftarrow z_i + 2 (x_i - x_0)`; the model x_0 is the mean of the :math:`z_i`. That
    is ``fed_dr`` with :math:`\alpha = 2`. The prox step s is best near :math:`1 / \sqrt{L \mu}`.

    A solver such as ``proxgd(penalty)`` puts a penalty of strength ``penalty_scale`` into the local
    problems, whose losses are then no longer smooth, and the model ends at a wrong point: use
    ``fed_dr`` with :math:`\alpha < 2`.

    Args:
      loss: one loss per example.
      solver: of the local problems; ``gd()`` by default.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_split))
      >>> cost.needs_everyone, fcojax.algorithms.fed_split.geometry  # no penalty
      (True, ())
    """
    chosen = splitting(loss, None, solver, lambda hparams: 2.0)
    return chosen._replace(needs_everyone=True)
