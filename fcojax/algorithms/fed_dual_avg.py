r"""FedDualAvg: averaging in the dual, the model read through the mirror.

Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, Algorithm 3 and section 5.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.fed_avg import PenalisedRates
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.problem import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.types import Array, Params


class DualPoint(NamedTuple):
    """A dual point z, and the total step size behind it, with which psi enters the model."""

    dual: Params
    elapsed: Array


class Displacement(NamedTuple):
    """What a client sends: how far its dual moved, and the sum of the steps it took."""

    dual: Params
    elapsed: Public


class DualSums(NamedTuple):
    """The server's dual point, and what rounding has left out of its two sums so far."""

    dual: Params
    elapsed: Array
    residue: DualPoint


@takes(PenalisedRates, "mirror")
def fed_dual_avg(loss: Loss, mirror: Mirror, *, client_prox: bool = True) -> Algorithm:
    r"""Federated dual averaging, with :math:`P_t` the mirror step of ``mirror``.

    The server keeps :math:`(z_r, T_r)`, starting at :math:`(\nabla h(w_0), 0)`; a round is

    .. math::
       w^m_k &= P_{T_r + \eta_c k}(z^m_k), \qquad
       z^m_{k+1} = z^m_k - \eta_c \nabla f(w^m_k; \xi^m_k), \quad z^m_0 = z_r \\
       z_{r+1} &= z_r + \eta_s \sum_m p_m (z^m_K - z_r), \qquad
       T_{r+1} = T_r + \eta_s \sum_m p_m \eta_c K_m

    and the model is :math:`P_{T_r}(z_r)`. Gradients are taken at primal points and added up in the
    dual, where averaging keeps the sparsity that averaging models destroys. The elapsed time is
    never reset, so the penalty keeps its weight against the sum of all gradients. A schedule of
    ``penalty_scale`` applies the strength of the moment to all of the elapsed time.

    Both sums grow for as long as the run lasts while their increments do not. Clients therefore
    add up displacements, and the server's sums are compensated, so that in float32 the error of
    the model stays that of rounding z and T once, however many rounds there were.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      client_prox: whether clients read the model through the penalty, or through
        :math:`\nabla h^*` alone as FedDualAvg-OSP does.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([[1.0, 0.9], [3.0, -0.9]])}, sizes=[1, 1])
      >>> algorithm = fcojax.algorithms.fed_dual_avg(
      ...     lambda w, rows: ((w[None] - rows["a"]) ** 2 / 2).sum(axis=1), euclidean(l1()))
      >>> hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=0.5)
      >>> w, _ = fcojax.run(
      ...     algorithm, hparams, jnp.zeros(2), data, jax.random.key(0), fcojax.local_steps(3),
      ...     num_rounds=200)
      >>> print(w.round(2))
      [1.5 0. ]
    """
    gradient = mean_gradient(loss)

    def model(hparams, server):
        return mirror.to_primal(server.dual, server.elapsed, hparams.penalty_scale)

    def local_model(hparams, point):
        return model(hparams, point) if client_prox else mirror.from_dual(point.dual)

    def init(hparams, params):
        dual, elapsed = mirror.to_dual(params), jnp.zeros_like(jnp.asarray(hparams.client_lr))
        return DualSums(dual, elapsed, tree.zeros_like(DualPoint(dual, elapsed))), ()

    def broadcast(hparams, server):
        return DualPoint(server.dual, server.elapsed)

    def client_update(hparams, message, client, local, key):
        def step(moved, batch):
            slope = gradient(local_model(hparams, tree.add(message, moved)), batch)
            return DualPoint(
                tree.add_scaled(moved.dual, -hparams.client_lr, slope),
                moved.elapsed + hparams.client_lr,
            )

        end = local.scan(step, tree.zeros_like(message))
        elapsed = local.num_steps.astype(message.elapsed.dtype) * hparams.client_lr
        return ClientResult(client, Displacement(end.dual, Public(elapsed)), {})

    def server_update(hparams, server, mean_upload, cohort, key):
        sums = DualPoint(server.dual, server.elapsed)
        increment = DualPoint(mean_upload.dual, mean_upload.elapsed.value)
        sums, residue = tree.add_compensated(sums, server.residue, hparams.server_lr, increment)
        return DualSums(sums.dual, sums.elapsed, residue)

    functions = init, broadcast, client_update, server_update, model
    return Algorithm(*functions, entrywise=mirror.separable)


@takes(PenalisedRates, "mirror")
def fed_dual_avg_osp(loss: Loss, mirror: Mirror) -> Algorithm:
    """FedDualAvg-OSP, "only server proximal": clients never see the penalty.

    Its dual sequence is FedAvg's sequence of models for any penalty, while the penalty's weight
    grows with time. With l1 the model therefore tends to zero: the result depends on when one
    stops, and there is no right fixed point.

    With ``entropic_simplex`` all gradients are taken on the simplex of sum 1 whatever
    ``penalty_scale`` is: use ``fed_dual_avg`` for another sum.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_dual_avg_osp))
      >>> cost.client_proxes, cost.server_proxes
      (0, 1)
    """
    return fed_dual_avg(loss, mirror, client_prox=False)
