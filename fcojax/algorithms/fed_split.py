r"""FedSplit: Peaceman-Rachford splitting.

Pathak and Wainwright, "FedSplit: an algorithmic framework for fast federated optimization",
NeurIPS 2020.
"""

from typing import NamedTuple

from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.fed_dr import splitting
from fcojax.algorithms.local_solvers import Solver
from fcojax.problems.losses import Loss
from fcojax.types import NonNegative, Positive


class FedSplitHparams(NamedTuple):
    """``client_lr`` is the local solver's step, ``prox_step`` is s.

    ``penalty_scale`` is the strength of a penalty in the solver, as in ``proxgd(penalty)``.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    penalty_scale: NonNegative = 0.1


@takes(FedSplitHparams)
def fed_split(loss: Loss, *, solver: Solver | None = None) -> Algorithm:
    r"""Minimise a smooth and strongly convex mean loss; full participation, no penalty.

    Clients compute :math:`x_i = \mathrm{prox}_{s f_i}(2 x_0 - z_i)` and update
    :math:`z_i \leftarrow z_i + 2 (x_i - x_0)`; the model x_0 is the mean of the :math:`z_i`. That
    is ``fed_dr`` with :math:`\alpha = 2`. The prox step s is best near :math:`1 / \sqrt{L \mu}`.

    A solver such as ``proxgd(penalty)`` adds a penalty of strength ``penalty_scale`` to the local
    problems, which are then not smooth, and the model converges to a wrong point: use ``fed_dr``
    with :math:`\alpha < 2`.

    Args:
      loss: one loss per example.
      solver: the solver of the local problems; ``gd()`` by default.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2  # minimiser 2.5
      >>> algorithm = fcojax.algorithms.fed_split(loss)
      >>> hparams = algorithm.hparams_type(client_lr=0.2, prox_step=0.5)
      >>> plan, key = fcojax.local_steps(5), jax.random.key(0)
      >>> x, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=100)
      >>> round(float(x), 3)
      2.5
    """
    split = splitting(loss, None, solver, lambda hparams: 2.0)
    return split._replace(needs_everyone=True)
