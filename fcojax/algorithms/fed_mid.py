r"""FedMiD: mirror-descent steps on the clients and on the server.

Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, Algorithm 2 and section 5.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.fed_avg import PenalisedRates
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.problem import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.types import Params


class Displacement(NamedTuple):
    """What a client sends: how far it moved, and the sum of the steps it took."""

    params: Params
    elapsed: Public


@takes(PenalisedRates, "mirror")
def fed_mid(
    loss: Loss, mirror: Mirror, *, client_prox: bool = True, server_prox: bool = True
) -> Algorithm:
    r"""Federated mirror descent, with :math:`P_t` the mirror step of ``mirror``.

    .. math::
       w^m_{k+1} &= P_{\eta_c}\big(\nabla h(w^m_k) - \eta_c \nabla f(w^m_k; \xi^m_k)\big) \\
       w_{r+1} &= P_{\eta_s \bar e}\Big(\nabla h(w_r) + \eta_s \sum_m p_m (w^m_K - w_r)\Big),
       \qquad \bar e = \sum_m p_m \eta_c K_m

    The printed form, which is the default, applies the penalty twice a round: with small steps
    it converges to the minimiser of F + 2 psi and not of F + psi, for every finite psi. Switch one
    of the two off for the right limit: ``server_prox=False`` keeps clients feasible,
    ``client_prox=False`` (FedMiD-OSP) keeps the model sparse. Constraints do not mind.

    The server adds a primal difference to a dual point, as printed; that is natural for the
    Euclidean mirror only. With ``euclidean(l0_ball(tau))`` this is Fed-IterHT, hard thresholding
    after each step and average, and FedMiD-OSP is Fed-HT, after each average alone (Tong, Liang,
    Zhu and Bi, 2020, arXiv 2101.00052); ``rank_ball`` does the same to singular values.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      client_prox: whether local steps apply the penalty, or only :math:`\nabla h^*`.
      server_prox: whether the server step does.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_mid))
      >>> cost.client_proxes, cost.server_proxes  # of a round of ten local steps
      (10, 1)
    """
    gradient = mean_gradient(loss)

    def mirror_step(z, elapsed, hparams, with_penalty):
        if not with_penalty:
            return mirror.from_dual(z)
        return mirror.to_primal(z, elapsed, hparams.penalty_scale)

    def init(hparams, params):
        return params, ()

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        def step(w, batch):
            z = tree.add_scaled(mirror.to_dual(w), -hparams.client_lr, gradient(w, batch))
            return mirror_step(z, hparams.client_lr, hparams, client_prox)

        end = local.scan(step, message)
        client_lr = jnp.asarray(hparams.client_lr)
        elapsed = local.num_steps.astype(client_lr.dtype) * client_lr
        return ClientResult(client, Displacement(tree.sub(end, message), Public(elapsed)), {})

    def server_update(hparams, server, mean_upload, cohort, key):
        z = tree.add_scaled(mirror.to_dual(server), hparams.server_lr, mean_upload.params)
        return mirror_step(z, hparams.server_lr * mean_upload.elapsed.value, hparams, server_prox)

    def model(hparams, server):
        return server

    functions = init, broadcast, client_update, server_update, model
    return Algorithm(*functions, entrywise=mirror.separable and not client_prox)


@takes(PenalisedRates, "mirror")
def fed_mid_osp(loss: Loss, mirror: Mirror) -> Algorithm:
    """FedMiD-OSP, "only server proximal": plain local steps, one mirror step on the server.

    The penalty is applied once a round, so with small steps its limit is the minimiser of
    F + psi, up to a drift of the order of ``client_lr`` times the local steps beyond the first.

    With ``entropic_simplex`` the local steps end on the simplex of sum 1 whatever ``penalty_scale``
    is, and so do their gradients from the second on: use ``fed_mid`` for another sum.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_mid_osp))
      >>> cost.client_proxes, cost.server_proxes
      (0, 1)
    """
    return fed_mid(loss, mirror, client_prox=False)
