r"""FedPD: a primal-dual method whose clients may skip communication together.

Zhang, Hong, Dhople, Yin and Liu, "FedPD: a federated learning framework with adaptivity to
non-IID data", IEEE Trans. Signal Process. 2021 (arXiv 2005.11418), Algorithm 1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.local_solvers import LocalProblem, Solver, gd
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive, Probability, PyTree


class FedPDHparams(NamedTuple):
    """``client_lr`` is the local solver's step; ``prox_step`` is eta.

    ``skip_probability`` is p, and ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    skip_probability: Probability = 0.0
    penalty_scale: NonNegative = 0.1


class Center(NamedTuple):
    """The model x_0 of the last exchange, and whether the last round ended with one."""

    center: Params
    synced: Array


class SkippingClient(NamedTuple):
    """x_i, lambda_i, the client's own copy of x_0, and the memory of its solver."""

    model: Params
    dual: Params
    anchor: Params
    memory: PyTree


@takes(FedPDHparams, "penalty")
def fed_pd(
    loss: Loss, penalty: Penalty | None = None, *, solver: Solver | None = None
) -> Algorithm:
    r"""Federated primal-dual optimisation of the mean loss plus psi, with every client each round.

    A client minimises its augmented Lagrangian, then updates its dual:

    .. math:: x_i \approx \arg\min_x f_i(x) + \langle \lambda_i, x - x_{0,i} \rangle
                         + \tfrac{1}{2 \eta} |x - x_{0,i}|^2, \qquad
              \lambda_i \leftarrow \lambda_i + (x_i - x_{0,i}) / \eta,

    and proposes :math:`m_i = x_i + \eta \lambda_i`. With probability 1 - p, one draw for all
    clients, all continue from :math:`x_0 = \mathrm{prox}_{\eta \psi}(\sum_i p_i m_i)`, otherwise
    each from its own :math:`m_i`. At the fixed point :math:`x_i = x_0` and
    :math:`\lambda_i = -\nabla f_i(x_0)`.

    For convex losses every :math:`\eta` converges if p = 0. With p > 0 the clients approach their
    own minimisers while they skip, and the model stalls at a distance that grows with :math:`\eta`
    and p; a schedule of ``skip_probability`` that falls to zero removes it.

    In a skipped round nothing is sent, and the engine counts no traffic: a round counts uploads if
    it ends with an exchange, and downloads if the round before did or if it is the first. The model
    is the one of the last exchange.

    Duals start at zero. To start from other duals, for example from an earlier run, set
    ``clients.dual`` of the engine's ``State``, one row per client. A client stores three vectors.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server, which makes the method FedADMM; none by default.
      solver: the solver of the local problems; ``local_solvers.gd()`` by default.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2  # minimiser with |x|: 2
      >>> algorithm = fcojax.algorithms.fed_pd(loss, fcojax.transforms.l1())
      >>> hparams = algorithm.hparams_type(client_lr=0.2, prox_step=0.5, penalty_scale=1.0)
      >>> plan, key = fcojax.local_steps(5), jax.random.key(0)
      >>> x, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=200)
      >>> round(float(x), 3)
      2.0

    References:
      Wang, Marella and Anderson, "FedADMM: a federated primal-dual algorithm allowing partial
      participation", CDC 2022 (arXiv 2203.15104), for the penalty. The authors' MATLAB code
      proposes :math:`x_i + \eta \lambda_i` with the old dual; here, as in the paper, the dual is
      the new one.
    """
    gradient, penalty, solver = mean_gradient(loss), penalty or zero(), solver or gd()

    def init(hparams, params):
        client = SkippingClient(params, tree.zeros_like(params), params, solver.init(params))
        return Center(params, jnp.asarray(True)), client

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        # A client learns in this round whether the last one was a synchronisation.
        anchor = tree.where(message.synced, message.center, client.anchor)
        problem = LocalProblem(gradient, anchor, client.dual, hparams.prox_step)
        model, memory = solver.solve(hparams, problem, client.model, client.memory, local)
        dual = tree.add_scaled(client.dual, 1 / hparams.prox_step, tree.sub(model, anchor))
        proposal = tree.add_scaled(model, hparams.prox_step, dual)
        return ClientResult(
            SkippingClient(model, dual, proposal, memory),
            tree.sub(proposal, message.center),
            {},
        )

    def server_update(hparams, server, mean_upload, fraction, key):
        # Both outcomes are computed and one is kept: a coin is a value, not a branch.
        synced = ~jax.random.bernoulli(key, hparams.skip_probability)
        mean = tree.add(server.center, mean_upload)
        center = penalty.prox(mean, hparams.prox_step, hparams.penalty_scale)
        return Center(tree.where(synced, center, server.center), synced)

    def model(hparams, server):
        return server.center

    def sent(hparams, before, after):
        return (
            before.synced,
            after.synced,
        )  # down if the last round synchronised, up if this one does

    return Algorithm(
        init,
        broadcast,
        client_update,
        server_update,
        model,
        needs_everyone=True,
        sent=sent,
        codecs="without feedback",
    )
