r"""FedMiD: mirror-descent steps on the clients and on the server.

Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, Algorithm 2 and section 5.
"""

from typing import NamedTuple

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Displacement, elapsed, takes
from fcojax.algorithms.linear_steps import linear_steps
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror
from fcojax.types import NonNegative, Positive


class FedMidHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1


@takes(FedMidHparams, "mirror")
def fed_mid(
    loss: Loss, mirror: Mirror, *, client_prox: bool = True, server_prox: bool = True
) -> Algorithm:
    r"""Federated mirror descent, with :math:`P_t` the mirror step of ``mirror``.

    .. math::
       w^m_{k+1} &= P_{\eta_c}\big(\nabla h(w^m_k) - \eta_c \nabla f(w^m_k; \xi^m_k)\big) \\
       w_{r+1} &= P_{\eta_s \bar e}\Big(\nabla h(w_r) + \eta_s \sum_m p_m (w^m_K - w_r)\Big),
       \qquad \bar e = \sum_m p_m \eta_c K_m

    The default, which is the form of the paper, applies the penalty twice per round: with small
    steps it converges to the minimiser of F + 2 psi and not of F + psi, for every finite psi.
    Switch one of them off to minimise F + psi: ``server_prox=False`` keeps clients feasible,
    ``client_prox=False`` (FedMiD-OSP) keeps the model sparse. For constraints all three are right.

    The server adds a primal difference to a dual point, as in the paper, which is natural for the
    Euclidean mirror only. With ``euclidean(l0_ball(tau))`` this is Fed-IterHT, hard thresholding
    after each step and average, and FedMiD-OSP is Fed-HT, after each average only (Tong, Liang, Zhu
    and Bi, 2020, arXiv 2101.00052).

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      client_prox: whether local steps apply the penalty, or only :math:`\nabla h^*`.
      server_prox: whether the server step applies it.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([2.0, 4.0])}, [1, 1])
      >>> algorithm = fcojax.algorithms.fed_mid(
      ...     lambda w, rows: (w - rows["a"]) ** 2 / 2, euclidean(l1()), server_prox=False)
      >>> hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=0.5)
      >>> plan, key = fcojax.local_steps(3), jax.random.key(0)
      >>> w, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=100)
      >>> round(float(w), 3)  # the mean of 2 and 4, soft thresholded at 0.5
      2.5
    """
    gradient = mean_gradient(loss)

    def mirror_step(z, step, hparams, with_penalty):
        if not with_penalty:
            return mirror.from_dual(z)
        return mirror.to_primal(z, step, hparams.penalty_scale)

    def init(hparams, params):
        return params, ()

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        def step(w, batch):
            z = tree.add_scaled(mirror.to_dual(w), -hparams.client_lr, gradient(w, batch))
            return mirror_step(z, hparams.client_lr, hparams, client_prox)

        # Steps without a prox are linear if the mirror map is the identity.
        if not client_prox and mirror.from_dual(mirror.to_dual(message)) is message:
            moved = linear_steps(loss, local, step, message)
        else:
            moved = tree.sub(local.scan(step, message), message)
        return ClientResult(client, Displacement(moved, elapsed(local, hparams.client_lr)), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        z = tree.add_scaled(mirror.to_dual(server), hparams.server_lr, mean_upload.params)
        return mirror_step(z, hparams.server_lr * mean_upload.elapsed.value, hparams, server_prox)

    def model(hparams, server):
        return server

    functions = init, broadcast, client_update, server_update, model
    return Algorithm(*functions)


@takes(FedMidHparams, "mirror")
def fed_mid_osp(loss: Loss, mirror: Mirror) -> Algorithm:
    """FedMiD-OSP, "only server proximal": plain local steps, one mirror step on the server.

    The penalty is applied once per round, so with small steps the limit is the minimiser of
    F + psi, up to a drift of the order of ``client_lr`` times the local steps after the first.

    With ``entropic_simplex`` the local steps end on the simplex of sum 1 for every
    ``penalty_scale``, so all gradients after the first are taken there: use ``fed_mid`` for another
    sum.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([[2.0, 0.9], [4.0, -0.9]])}, [1, 1])
      >>> loss = lambda w, rows: ((w[None] - rows["a"]) ** 2 / 2).sum(axis=1)
      >>> algorithm = fcojax.algorithms.fed_mid_osp(loss, euclidean(l1()))
      >>> hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=0.5)
      >>> plan, key = fcojax.local_steps(1), jax.random.key(0)
      >>> w, _ = fcojax.run(algorithm, hparams, jnp.ones(2), data, key, plan, num_rounds=200)
      >>> print(w.round(2))  # one prox per round, and an exact zero
      [2.5 0. ]
    """
    return fed_mid(loss, mirror, client_prox=False)
