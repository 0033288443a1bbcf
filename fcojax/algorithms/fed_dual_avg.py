r"""FedDualAvg: averaging in the dual; the model is the mirror step of the mean dual point.

Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, Algorithm 3 and section 5.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Displacement, elapsed, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.types import Array, NonNegative, Params, Positive


class FedDualAvgHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1


class DualPoint(NamedTuple):
    """A dual point z, and the total step size so far, the weight of psi in the model."""

    dual: Params
    elapsed: Array


class DualSums(NamedTuple):
    """The server's dual point, and the rounding errors of its two sums so far."""

    dual: Params
    elapsed: Array
    residue: DualPoint


@takes(FedDualAvgHparams, "mirror")
def fed_dual_avg(loss: Loss, mirror: Mirror, *, client_prox: bool = True) -> Algorithm:
    r"""Federated dual averaging, with :math:`P_t` the mirror step of ``mirror``.

    The server keeps :math:`(z_r, T_r)`, starting at :math:`(\nabla h(w_0), 0)`; a round is

    .. math::
       w^m_k &= P_{T_r + \eta_c k}(z^m_k), \qquad
       z^m_{k+1} = z^m_k - \eta_c \nabla f(w^m_k; \xi^m_k), \quad z^m_0 = z_r \\
       z_{r+1} &= z_r + \eta_s \sum_m p_m (z^m_K - z_r), \qquad
       T_{r+1} = T_r + \eta_s \sum_m p_m \eta_c K_m

    and the model is :math:`P_{T_r}(z_r)`. Gradients are taken at primal points and summed in the
    dual, where averaging keeps the sparsity that averaging models destroys. T is never reset, so
    the penalty keeps its weight relative to the sum of all gradients. With a schedule of
    ``penalty_scale`` the current strength applies to all of T.

    Both sums grow with the number of rounds while their increments do not. Clients therefore sum
    displacements, and the server's sums are compensated: in float32 the rounding error of z and T
    does not grow with the number of rounds.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      client_prox: whether clients map dual points to the primal with the penalty, or with
        :math:`\nabla h^*` only, as FedDualAvg-OSP does.

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
        point = DualPoint(mirror.to_dual(params), jnp.zeros_like(jnp.asarray(hparams.client_lr)))
        return DualSums(*point, tree.zeros_like(point)), ()

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
        return ClientResult(client, Displacement(end.dual, elapsed(local, hparams.client_lr)), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        sums = DualPoint(server.dual, server.elapsed)
        increment = DualPoint(mean_upload.params, mean_upload.elapsed.value)
        sums, residue = tree.add_compensated(sums, server.residue, hparams.server_lr, increment)
        return DualSums(sums.dual, sums.elapsed, residue)

    return Algorithm(init, broadcast, client_update, server_update, model)


@takes(FedDualAvgHparams, "mirror")
def fed_dual_avg_osp(loss: Loss, mirror: Mirror) -> Algorithm:
    """FedDualAvg-OSP, "only server proximal": clients do not use the penalty.

    Its dual sequence is FedAvg's sequence of models for any penalty, while the weight of the
    penalty grows with the rounds. With l1 the model therefore tends to zero: the result depends on
    the number of rounds, and the minimiser is not a fixed point.

    With ``entropic_simplex`` all gradients are taken on the simplex of sum 1 for every
    ``penalty_scale``: use ``fed_dual_avg`` for another sum.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([2.0, 4.0])}, [1, 1])
      >>> loss = lambda w, rows: (w - rows["a"]) ** 2 / 2  # minimiser with |w| / 2: 2.5
      >>> algorithm = fcojax.algorithms.fed_dual_avg_osp(loss, euclidean(l1()))
      >>> hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=0.5)
      >>> plan, key = fcojax.local_steps(1), jax.random.key(0)
      >>> for num_rounds in (20, 80):
      ...     w, _ = fcojax.run(
      ...         algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=num_rounds)
      ...     print(round(float(w), 2))
      1.64
      0.0
    """
    return fed_dual_avg(loss, mirror, client_prox=False)
