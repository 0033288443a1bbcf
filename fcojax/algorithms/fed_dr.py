r"""FedDR: randomised Douglas-Rachford splitting.

Tran-Dinh, Pham, Phan and Nguyen, "FedDR: randomized Douglas-Rachford splitting algorithms for
nonconvex federated composite optimization", NeurIPS 2021 (arXiv 2103.03452), Algorithms 1 and 2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.fed_dyn import DualClient
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.local_solvers import LocalProblem, Solver, gd
from fcojax.problems.losses import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Params, Positive, Scalar


class FedDRHparams(NamedTuple):
    """``client_lr`` is the local solver's step, ``prox_step`` is eta, ``relaxation`` alpha.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    relaxation: NonNegative = 1.95
    penalty_scale: NonNegative = 0.1


class Split(NamedTuple):
    """The mean of the proposals of all clients, and its prox, the model."""

    total: Params
    center: Params


@takes(FedDRHparams, "penalty")
def fed_dr(
    loss: Loss, penalty: Penalty | None = None, *, solver: Solver | None = None
) -> Algorithm:
    r"""Randomised Douglas-Rachford splitting of the mean loss plus psi; exact, with any cohort.

    A client of the cohort S computes, from the server's x_0 and a relaxed anchor,

    .. math:: a_i = x_i + \alpha (x_0 - x_i), \quad
              x_i \approx \mathrm{prox}_{\eta f_i}(a_i - \eta \lambda_i), \quad
              \lambda_i \leftarrow \lambda_i + (x_i - a_i) / \eta,

    and sends the change of its proposal :math:`m_i = x_i + \eta \lambda_i`. The server keeps the
    mean of the proposals of **all** clients, to which it adds the mean change, and
    :math:`x_0 = \mathrm{prox}_{\eta \psi}(\sum_i p_i m_i)`.

    In the paper's symbols :math:`y_i = x_i - \eta \lambda_i` and :math:`\hat x_i = m_i`. All
    clients start at the first model with :math:`\lambda_i = 0`, so the mean is right in the first
    round; an error in it would persist. Relaxations between 0 and 2 converge for convex losses and
    any eta.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; none by default.
      solver: the solver of the local problems; ``gd()`` by default.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2  # minimiser with |x|: 2
      >>> algorithm = fcojax.algorithms.fed_dr(loss, fcojax.transforms.l1())
      >>> hparams = algorithm.hparams_type(client_lr=0.2, relaxation=1.5, penalty_scale=1.0)
      >>> plan, key = fcojax.local_steps(3), jax.random.key(0)
      >>> x, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=100)
      >>> round(float(x), 3)
      2.0
    """
    return splitting(loss, penalty, solver, lambda hparams: hparams.relaxation)


def splitting(
    loss: Loss,
    penalty: Penalty | None,
    solver: Solver | None,
    relaxation: Callable[[Any], Scalar],
) -> Algorithm:
    r"""The algorithm of ``fed_dr``, with a relaxation that is a function of the hyperparameters.

    FedADMM uses relaxation 1 and FedSplit relaxation 2.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; none by default.
      solver: the solver of the local problems; ``gd()`` by default.
      relaxation: ``(hparams) -> alpha``.
    """
    gradient, solver = mean_gradient(loss), solver or gd()

    def init(hparams, params):
        client = DualClient(params, tree.zeros_like(params), solver.init(params))
        return Split(params, params), client

    def broadcast(hparams, server):
        return server.center

    def client_update(hparams, message, client, local, key):
        relaxed = tree.scale(relaxation(hparams), tree.sub(message, client.model))
        anchor = tree.add(client.model, relaxed)
        problem = LocalProblem(gradient, anchor, client.dual, hparams.prox_step)
        model, memory = solver.solve(hparams, problem, client.model, client.memory, local)
        from_anchor = tree.sub(model, anchor)
        dual = tree.add_scaled(client.dual, 1 / hparams.prox_step, from_anchor)
        change = tree.add(tree.sub(model, client.model), from_anchor)
        return ClientResult(DualClient(model, dual, memory), change, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        total = tree.add_scaled(server.total, fraction, mean_upload)
        center = total
        if penalty is not None:
            center = penalty.prox(total, hparams.prox_step, hparams.penalty_scale)
        return Split(total, center)

    def model(hparams, server):
        return server.center

    return Algorithm(init, broadcast, client_update, server_update, model)
