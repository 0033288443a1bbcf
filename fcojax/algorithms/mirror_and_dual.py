"""Mirror descent and dual averaging: averages of models, and of dual points."""

from typing import NamedTuple

from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.parts import (
    dual,
    dual_sums,
    elapsed,
    method,
    mirror_average,
    mirrored,
    none,
)
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

    References:
      Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, Algorithm 2 and section
      5.
    """
    geometry, server = mirrored(mirror, prox=client_prox), mirror_average(mirror, prox=server_prox)
    return method(loss, geometry, none(elapsed), server)


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

    References:
      Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, section 5.
    """
    return fed_mid(loss, mirror, client_prox=False)


@takes(FedMidHparams, "mirror")
def fed_mip(loss: Loss, mirror: Mirror, *, server_prox: bool = True) -> Algorithm:
    r"""Federated mirror prox, the primal form of FeDualEx: FedMiD with extragradient steps.

    .. math::
       w_{k + 1/2} &= P_{\eta_c}\big(\nabla h(w_k) - \eta_c g(w_k)\big), \qquad
       w_{k+1} = P_{\eta_c}\big(\nabla h(w_k) - \eta_c g(w_{k + 1/2})\big) \\
       w_{r+1} &= P_{\eta_s \bar e}\Big(\nabla h(w_r) + \eta_s \sum_m p_m (w^m_K - w_r)\Big),
       \qquad \bar e = \sum_m p_m \eta_c K_m

    As in the paper's FedMiD, the penalty is applied on the clients and again on the server, so the
    limit has twice the penalty unless ``server_prox`` is false. A local step takes two proxes, the
    server's step one.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      server_prox: whether the server step applies the penalty.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([2.0, 4.0])}, [1, 1])
      >>> algorithm = fcojax.algorithms.fed_mip(
      ...     lambda w, rows: (w - rows["a"]) ** 2 / 2, euclidean(l1()), server_prox=False)
      >>> hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=0.5)
      >>> plan, key = fcojax.local_steps(3), jax.random.key(0)
      >>> w, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=100)
      >>> round(float(w), 3)  # the mean of 2 and 4, soft thresholded at 0.5
      2.5

    References:
      Bai and Bullins, "Local composite saddle point optimization", ICLR 2024, Algorithm 2.
    """
    geometry = mirrored(mirror, extragradient=True)
    return method(loss, geometry, none(elapsed), mirror_average(mirror, prox=server_prox))


class FedDualAvgHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1


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

    References:
      Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, Algorithm 3 and section
      5.
    """
    return method(loss, dual(mirror, prox=client_prox), none(elapsed), dual_sums(mirror))


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

    References:
      Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, section 5.
    """
    return fed_dual_avg(loss, mirror, client_prox=False)


@takes(FedDualAvgHparams, "mirror")
def fe_dual_ex(loss: Loss, mirror: Mirror) -> Algorithm:
    r"""Federated dual extrapolation, with :math:`P_t` the mirror step of ``mirror``.

    This is FedDualAvg with the local gradient taken at an extrapolated point:

    .. math::
       w_k &= P_{T_r + \eta_c k}(z_k), \qquad
       w_{k + 1/2} = P_{T_r + \eta_c (k + 1)}\big(z_k - \eta_c g(w_k)\big), \qquad
       z_{k+1} = z_k - \eta_c g(w_{k + 1/2}) \\
       z_{r+1} &= z_r + \eta_s \sum_m p_m (z^m_K - z_r), \qquad
       T_{r+1} = T_r + \eta_s \sum_m p_m \eta_c K_m

    and the model is :math:`P_{T_r}(z_r)`. For saddle points
    :math:`\min_x \max_y f(x, y) + \psi_1(x) - \psi_2(y)` the loss is one that
    ``fcojax.problems.saddle`` made, with :math:`g = (\nabla_x f, -\nabla_y f)`, and the penalty of
    the mirror is :math:`\psi_1(x) + \psi_2(y)`. The theorem bounds the gap at an average of the
    extrapolated points, the model of ``fcojax.theory.saddle.extrapolated_average``.

    Both gradients of a step use the same batch; the paper draws one for each. A local step takes
    two proxes.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, zero
      >>> data = fcojax.from_rows({"a": np.array([2.0, 4.0])}, [1, 1])
      >>> bilinear = lambda params, rows: params["x"] * params["y"] - rows["a"] * params["x"]
      >>> algorithm = fcojax.algorithms.fe_dual_ex(
      ...     fcojax.problems.saddle(bilinear), euclidean(zero()))
      >>> start = {"x": jnp.array(1.0), "y": jnp.array(0.0)}
      >>> plan, key = fcojax.local_steps(2), jax.random.key(0)
      >>> point, _ = fcojax.run(
      ...     algorithm, algorithm.hparams_type(0.3), start, data, key, plan, num_rounds=200)
      >>> round(float(point["y"]), 3), abs(round(float(point["x"]), 3))
      (3.0, 0.0)

    References:
      Bai and Bullins, "Local composite saddle point optimization", ICLR 2024, Algorithm 1.
    """
    return method(loss, dual(mirror, extragradient=True), none(elapsed), dual_sums(mirror))
