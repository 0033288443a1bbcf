r"""FedAvgM, FedAdagrad, FedAdam and FedYogi: gradient steps on clients, momentum on the server.

Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated visual
classification", 2019 (arXiv 1909.06335), for FedAvgM; Reddi et al., "Adaptive federated
optimization", ICLR 2021, Algorithm 2, for the others. Their proxes are ours.
"""

from typing import NamedTuple

from fcojax.algorithms import optimisers
from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.fed_opt import fed_opt
from fcojax.problems.losses import Loss
from fcojax.transforms.calculus.per_entry import prox_per_entry
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Positive, Probability


class FedAvgMHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``momentum`` is beta.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    momentum: Probability = 0.9
    penalty_scale: NonNegative = 0.1


class FedAdagradHparams(NamedTuple):
    """``client_lr`` is eta_l, ``server_lr`` is eta, ``b1`` is beta_1, ``adaptivity`` is tau.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 0.1
    b1: Probability = 0.0
    adaptivity: NonNegative = 1e-3
    penalty_scale: NonNegative = 0.1


class FedAdamHparams(NamedTuple):
    """``client_lr`` is eta_l, ``server_lr`` is eta, ``b1`` and ``b2`` are beta_1 and beta_2.

    ``adaptivity`` is tau, ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 0.01
    b1: Probability = 0.9
    b2: Probability = 0.99
    adaptivity: NonNegative = 1e-3
    penalty_scale: NonNegative = 0.1


@takes(FedAvgMHparams, "penalty")
def fed_avg_m(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""FedAvgM: FedAvg whose server has momentum.

    .. math:: m_{r+1} = \beta m_r + \Delta_r, \qquad w_{r+1} = w_r + \eta_s m_{r+1}, \qquad
              \Delta_r = \sum_m p_m (w^m_K - w_r)

    With beta = 0 it is FedAvg. Over all later rounds a displacement counts 1 / (1 - beta) times.

    With a penalty, which may be any, the server's step is
    :math:`\mathrm{prox}_{\eta_s t \psi}(w_r + \eta_s m_{r+1})` with
    :math:`t_{r+1} = \beta t_r + \sum_m p_m \eta_c K_m`; with beta = 0 that is FedMiD-OSP.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; none by default.

    Example:
      >>> import fcojax
      >>> hparams = fcojax.algorithms.fed_avg_m.Hparams(momentum=0.75)
      >>> 1 / (1 - hparams.momentum)  # how often a displacement counts over all later rounds
      4.0
    """
    return fed_opt(loss, penalty, server=_heavy_ball, hparams_type=FedAvgMHparams)


@takes(FedAdagradHparams, "penalty")
def fed_adagrad(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""FedAdagrad: ``fed_adam`` with :math:`v_{r+1} = v_r + \Delta_r^2`.

    The paper runs it with beta_1 = 0. Steps shrink with the rounds; with a penalty, whose minimiser
    is no zero of the gradient, they tend to zero.

    Args:
      loss: one loss per example.
      penalty: psi, a sum over entries or a norm or ball of l2, applied on the server; none by
        default.

    Example:
      >>> import fcojax
      >>> hparams = fcojax.algorithms.fed_adagrad.Hparams(server_lr=0.03)
      >>> hparams.b1, hparams.adaptivity
      (0.0, 0.001)
      >>> fcojax.algorithms.fed_adagrad(lambda w, rows: rows @ w, fcojax.transforms.nuclear())
      Traceback (most recent call last):
          ...
      ValueError: the penalty of fed_adagrad couples entries, ...
    """
    _require_diagonal_prox(penalty, "fed_adagrad")
    return fed_opt(loss, penalty, server=_adagrad, hparams_type=FedAdagradHparams)


@takes(FedAdamHparams, "penalty")
def fed_adam(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""FedAdam: gradient steps on the clients, Adam on the server.

    With :math:`\Delta_r = \sum_m p_m (w^m_K - w_r)`, squares and roots entry by entry,

    .. math::
       m_{r+1} &= \beta_1 m_r + (1 - \beta_1) \Delta_r, \qquad
       v_{r+1} = \beta_2 v_r + (1 - \beta_2) \Delta_r^2 \\
       w_{r+1} &= w_r + s\, m_{r+1}, \qquad s = \eta / (\sqrt{v_{r+1}} + \tau)

    from m = 0 and v = tau^2, as printed; for ``optax.adam``, which also corrects the bias of the
    first steps, use ``fed_opt(loss, server=lambda h: optax.adam(h.server_lr), ...)``.

    With a penalty the server's step is the prox in the metric of s,

    .. math:: w_{r+1} = \arg\min_x \; -\langle m_{r+1}, x \rangle + t_{r+1} \psi(x)
                        + \sum_j (x_j - w_{r,j})^2 / 2 s_j, \qquad
              t_{r+1} = \beta_1 t_r + (1 - \beta_1) \sum_m p_m \eta_c K_m,

    for l1 soft thresholding of entry j at :math:`s_j t \lambda`. With everyone and one full local
    step the minimiser of F + psi is then the fixed point. The Euclidean prox has another one.

    Args:
      loss: one loss per example.
      penalty: psi, a sum over entries or a norm or ball of l2, applied on the server; none by
        default.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import l1
      >>> data = fcojax.from_clients([{"a": np.array([[1.0, 0.1]])}, {"a": np.array([[3.0, 0.1]])}])
      >>> algorithm = fed_adam(lambda w, rows: ((w[None] - rows["a"]) ** 2 / 2).sum(-1), l1())
      >>> w, _ = fcojax.run(
      ...     algorithm, fed_adam.Hparams(server_lr=0.1, penalty_scale=0.5), jnp.zeros(2), data,
      ...     jax.random.key(0), fcojax.local_steps(1), num_rounds=300)
      >>> print(np.asarray(w).round(2))
      [1.5 0. ]
    """
    _require_diagonal_prox(penalty, "fed_adam")
    return fed_opt(loss, penalty, server=_adam, hparams_type=FedAdamHparams)


@takes(FedAdamHparams, "penalty")
def fed_yogi(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""FedYogi: ``fed_adam`` with a second moment that decreases more slowly after large steps.

    .. math:: v_{r+1} = v_r - (1 - \beta_2) \Delta_r^2\, \mathrm{sign}(v_r - \Delta_r^2)

    Args:
      loss: one loss per example.
      penalty: psi, a sum over entries or a norm or ball of l2, applied on the server; none by
        default.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_yogi.Hparams(server_lr=0.03)
      FedAdamHparams(client_lr=0.01, server_lr=0.03, b1=0.9, b2=0.99, adaptivity=0.001,
                     penalty_scale=0.1)
    """
    _require_diagonal_prox(penalty, "fed_yogi")
    return fed_opt(loss, penalty, server=_yogi, hparams_type=FedAdamHparams)


def _require_diagonal_prox(penalty: Penalty | None, name: str) -> None:
    if penalty is not None:
        prox_per_entry(penalty, name)


def _heavy_ball(hparams):
    return optimisers.heavy_ball(hparams.server_lr, hparams.momentum)


def _adagrad(hparams):
    return optimisers.adagrad(hparams.server_lr, hparams.b1, hparams.adaptivity)


def _adam(hparams):
    return optimisers.adam(hparams.server_lr, hparams.b1, hparams.b2, hparams.adaptivity)


def _yogi(hparams):
    return optimisers.yogi(hparams.server_lr, hparams.b1, hparams.b2, hparams.adaptivity)
