r"""FeDualEx and FedMiP: an extra step, in the dual and in the primal, for composite saddle points.

Bai and Bullins, "Local composite saddle point optimization", ICLR 2024, Algorithms 1 and 2. With
``fcojax.problems.saddle`` every algorithm of the library takes descent-ascent steps; these two look
one step ahead, which is what bilinear problems need.
"""

from collections.abc import Callable

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.fed_avg import PenalisedRates
from fcojax.algorithms.fed_dual_avg import Displacement, DualPoint, fed_dual_avg
from fcojax.algorithms.fed_mid import Displacement as Move
from fcojax.algorithms.fed_mid import fed_mid
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.problem import Loss
from fcojax.transforms.mirrors.mirror import Mirror


def extrapolation(loss: Loss, mirror: Mirror) -> Callable:
    """``(hparams, message) -> (ahead, step)``, both ``(moved, batch) -> moved`` of one client.

    What has moved since the message is a ``DualPoint``. ``ahead`` says where a dual averaging step
    would lead to, and ``step`` goes along the gradient that is found there.
    """
    gradient = mean_gradient(loss)

    def of_client(hparams, message):
        def along(moved, point, batch):
            at = tree.add(message, point)
            w = mirror.to_primal(at.dual, at.elapsed, hparams.penalty_scale)
            dual = tree.add_scaled(moved.dual, -hparams.client_lr, gradient(w, batch))
            return DualPoint(dual, moved.elapsed + hparams.client_lr)

        def ahead(moved, batch):
            return along(moved, moved, batch)

        return ahead, lambda moved, batch: along(moved, ahead(moved, batch), batch)

    return of_client


@takes(PenalisedRates, "mirror")
def fe_dual_ex(loss: Loss, mirror: Mirror) -> Algorithm:
    r"""Federated dual extrapolation, with :math:`P_t` the mirror step of ``mirror``.

    FedDualAvg, whose local step takes its gradient at a point that is one step ahead:

    .. math::
       w_k &= P_{T_r + \eta_c k}(z_k), \qquad
       w_{k + 1/2} = P_{T_r + \eta_c (k + 1)}\big(z_k - \eta_c g(w_k)\big), \qquad
       z_{k+1} = z_k - \eta_c g(w_{k + 1/2}) \\
       z_{r+1} &= z_r + \eta_s \sum_m p_m (z^m_K - z_r), \qquad
       T_{r+1} = T_r + \eta_s \sum_m p_m \eta_c K_m

    and the model is :math:`P_{T_r}(z_r)`. For saddle points
    :math:`\min_x \max_y f(x, y) + \psi_1(x) - \psi_2(y)` the loss is one that
    ``fcojax.problems.saddle`` made, with :math:`g = (\nabla_x f, -\nabla_y f)`, and the penalty of
    the mirror is :math:`\psi_1(x) + \psi_2(y)`. The theorem speaks of an average of the
    points one step ahead, which is the model of ``fcojax.theory.saddle.extrapolated_average``.

    Both gradients of a step are of the step's batch; the paper draws one for each.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fe_dual_ex))
      >>> cost.client_proxes  # two for each of ten local steps
      20
    """
    averaging, ahead_of = fed_dual_avg(loss, mirror), extrapolation(loss, mirror)

    def client_update(hparams, message, client, local, key):
        _, step = ahead_of(hparams, message)
        end = local.scan(step, tree.zeros_like(message))
        elapsed = local.num_steps.astype(message.elapsed.dtype) * hparams.client_lr
        return ClientResult(client, Displacement(end.dual, Public(elapsed)), {})

    return averaging._replace(client_update=client_update)


@takes(PenalisedRates, "mirror")
def fed_mip(loss: Loss, mirror: Mirror, *, server_prox: bool = True) -> Algorithm:
    r"""Federated mirror prox, FeDualEx's primal twin: FedMiD with the extra step.

    .. math::
       w_{k + 1/2} &= P_{\eta_c}\big(\nabla h(w_k) - \eta_c g(w_k)\big), \qquad
       w_{k+1} = P_{\eta_c}\big(\nabla h(w_k) - \eta_c g(w_{k + 1/2})\big) \\
       w_{r+1} &= P_{\eta_s \bar e}\Big(\nabla h(w_r) + \eta_s \sum_m p_m (w^m_K - w_r)\Big),
       \qquad \bar e = \sum_m p_m \eta_c K_m

    As in FedMiD as printed, the penalty is applied on the clients and once more on the server, so
    that the limit is that of twice the penalty, unless ``server_prox`` is switched off.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_mip))
      >>> cost.client_proxes, cost.server_proxes  # two for each of ten local steps
      (20, 1)
    """
    descending = fed_mid(loss, mirror, server_prox=server_prox)
    gradient = mean_gradient(loss)

    def client_update(hparams, message, client, local, key):
        def step(w, batch):
            def along(slope):
                z = tree.add_scaled(mirror.to_dual(w), -hparams.client_lr, slope)
                return mirror.to_primal(z, hparams.client_lr, hparams.penalty_scale)

            ahead = along(gradient(w, batch))
            return along(gradient(ahead, batch))

        end = local.scan(step, message)
        client_lr = jnp.asarray(hparams.client_lr)
        elapsed = local.num_steps.astype(client_lr.dtype) * client_lr
        return ClientResult(client, Move(tree.sub(end, message), Public(elapsed)), {})

    return descending._replace(client_update=client_update)
