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
from fcojax.problems.problem import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Params, PyTree, Scalar


class SkippingRates(NamedTuple):
    """``client_lr`` is the local solver's step; ``prox_step`` is eta.

    ``skip_probability`` is p, and ``penalty_scale`` is the strength of psi.
    """

    client_lr: Scalar = 0.01
    prox_step: Scalar = 1.0
    skip_probability: Scalar = 0.0
    penalty_scale: Scalar = 0.1


class Center(NamedTuple):
    """The model x_0 of the last exchange, and whether the last round ended with one."""

    center: Params
    synced: Array


class SkippingClient(NamedTuple):
    """x_i, lambda_i, the client's own copy of x_0, and what its solver remembers."""

    model: Params
    dual: Params
    anchor: Params
    memory: PyTree


@takes(SkippingRates, "penalty")
def fed_pd(
    loss: Loss, penalty: Penalty | None = None, *, solver: Solver | None = None
) -> Algorithm:
    r"""Federated primal-dual optimisation of the mean loss plus psi, with every client each round.

    A client minimises its augmented Lagrangian, then moves its dual:

    .. math:: x_i \approx \arg\min_x f_i(x) + \langle \lambda_i, x - x_{0,i} \rangle
                         + \tfrac{1}{2 \eta} |x - x_{0,i}|^2, \qquad
              \lambda_i \leftarrow \lambda_i + (x_i - x_{0,i}) / \eta,

    and offers :math:`m_i = x_i + \eta \lambda_i`. One coin for the whole federation then decides:
    with probability 1 - p all continue from
    :math:`x_0 = \mathrm{prox}_{\eta \psi}(\sum_i p_i m_i)`, otherwise each from its own
    :math:`m_i`. At the fixed point :math:`x_i = x_0` and :math:`\lambda_i = -\nabla f_i(x_0)`.

    For convex losses every :math:`\eta` works if p = 0. With p > 0 the clients walk towards their
    own minimisers while they skip, and the model stalls at a distance that grows with
    :math:`\eta` and p; a schedule of ``skip_probability`` that falls to zero removes it.

    In a skipped round nothing is sent, and the engine's traffic counts nothing: uploads are those
    of the rounds that end with an exchange, downloads those of the rounds after one, the start
    included. The model is that of the last exchange.

    Duals start at zero. Others, say those of an earlier run, go into ``clients.dual`` of the
    engine's ``State``, one row a client.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server, which makes the method FedADMM; none by default.
      solver: of the local problems; ``local_solvers.gd()`` by default.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_pd))
      >>> cost.state, cost.needs_everyone  # a client keeps x_i, lambda_i and its own copy of x_0
      ('3 d', True)

    References:
      Wang, Marella and Anderson, "FedADMM: a federated primal-dual algorithm allowing partial
      participation", 2022 (arXiv 2203.15104), for the penalty. The authors' MATLAB code offers
      :math:`x_i + \eta \lambda_i` with the old dual; this is the paper's, with the new one.
    """
    gradient, penalty, solver = mean_gradient(loss), penalty or zero(), solver or gd()

    def init(hparams, params):
        client = SkippingClient(params, tree.zeros_like(params), params, solver.init(params))
        return Center(params, jnp.asarray(True)), client

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        anchor = tree.where(message.synced, message.center, client.anchor)
        problem = LocalProblem(gradient, anchor, client.dual, hparams.prox_step)
        model, memory = solver.solve(hparams, problem, client.model, client.memory, local)
        dual = tree.add_scaled(client.dual, 1 / hparams.prox_step, tree.sub(model, anchor))
        offer = tree.add_scaled(model, hparams.prox_step, dual)
        return ClientResult(
            SkippingClient(model, dual, offer, memory),
            tree.sub(offer, message.center),
            {},
        )

    def server_update(hparams, server, mean_upload, cohort, key):
        synced = ~jax.random.bernoulli(key, hparams.skip_probability)
        mean = tree.add(server.center, mean_upload)
        center = penalty.prox(mean, hparams.prox_step, hparams.penalty_scale)
        return Center(tree.where(synced, center, server.center), synced)

    def model(hparams, server):
        return server.center

    def sent(hparams, before, after):
        return before.synced, after.synced

    return Algorithm(
        init, broadcast, client_update, server_update, model, needs_everyone=True, sent=sent
    )
