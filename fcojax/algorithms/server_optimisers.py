r"""FedAvgM, FedAdagrad, FedAdam and FedYogi: plain clients, a server that remembers.

Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated visual
classification", 2019 (arXiv 1909.06335), for FedAvgM; Reddi et al., "Adaptive federated
optimization", ICLR 2021, Algorithm 2, for the others. Their proxes are ours.
"""

from typing import NamedTuple

from fcojax.algorithms import optimisers
from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.fed_opt import fed_opt
from fcojax.problems.problem import Loss
from fcojax.transforms.calculus.entries import sum_over_entries
from fcojax.transforms.penalty import Penalty
from fcojax.types import Scalar


class MomentumRates(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``momentum`` is beta.

    ``penalty_scale`` is the strength of psi, where there is one.
    """

    client_lr: Scalar = 0.01
    server_lr: Scalar = 1.0
    momentum: Scalar = 0.9
    penalty_scale: Scalar = 0.1


class AdagradRates(NamedTuple):
    """``client_lr`` is eta_l, ``server_lr`` is eta, ``b1`` is beta_1, ``adaptivity`` is tau > 0.

    ``penalty_scale`` is the strength of psi, where there is one.
    """

    client_lr: Scalar = 0.01
    server_lr: Scalar = 0.1
    b1: Scalar = 0.0
    adaptivity: Scalar = 1e-3
    penalty_scale: Scalar = 0.1


class AdaptiveRates(NamedTuple):
    """As ``AdagradRates``, and ``b2`` is beta_2."""

    client_lr: Scalar = 0.01
    server_lr: Scalar = 0.01
    b1: Scalar = 0.9
    b2: Scalar = 0.99
    adaptivity: Scalar = 1e-3
    penalty_scale: Scalar = 0.1


@takes(MomentumRates, "penalty")
def fed_avg_m(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""FedAvgM: FedAvg whose server has momentum.

    .. math:: m_{r+1} = \beta m_r + \Delta_r, \qquad w_{r+1} = w_r + \eta_s m_{r+1}, \qquad
              \Delta_r = \sum_m p_m (w^m_K - w_r)

    With beta = 0 it is FedAvg. In the long run a displacement counts 1 / (1 - beta) times.

    With a penalty, which may be any, the server's step is
    :math:`\mathrm{prox}_{\eta_s t \psi}(w_r + \eta_s m_{r+1})` with
    :math:`t_{r+1} = \beta t_r + \sum_m p_m \eta_c K_m`; with beta = 0 that is FedMiD-OSP.

    Example:
      >>> import fcojax
      >>> hparams = fcojax.algorithms.fed_avg_m.Hparams(momentum=0.75)
      >>> 1 / (1 - hparams.momentum)  # what a displacement counts in the long run
      4.0
    """
    return fed_opt(loss, penalty, server=_heavy_ball, hparams=MomentumRates)


@takes(AdagradRates, "penalty")
def fed_adagrad(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""FedAdagrad: as ``fed_adam``, with :math:`v_{r+1} = v_r + \Delta_r^2`.

    The paper runs it with beta_1 = 0. Steps shrink as rounds go by; with a penalty, whose
    minimiser is no zero of the gradient, they do so for ever.

    Example:
      >>> import fcojax
      >>> hparams = fcojax.algorithms.fed_adagrad.Hparams(server_lr=0.03)
      >>> hparams.b1, hparams.adaptivity
      (0.0, 0.001)
      >>> fcojax.algorithms.fed_adagrad(lambda w, rows: rows @ w, fcojax.transforms.nuclear())
      Traceback (most recent call last):
          ...
      ValueError: fed_adagrad ...
    """
    return fed_opt(loss, _by_entry(penalty, "fed_adagrad"), server=_adagrad, hparams=AdagradRates)


@takes(AdaptiveRates, "penalty")
def fed_adam(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""FedAdam: FedAvg's clients, and Adam on the server.

    With :math:`\Delta_r = \sum_m p_m (w^m_K - w_r)`, squares and roots entry by entry,

    .. math::
       m_{r+1} &= \beta_1 m_r + (1 - \beta_1) \Delta_r, \qquad
       v_{r+1} = \beta_2 v_r + (1 - \beta_2) \Delta_r^2 \\
       w_{r+1} &= w_r + s\, m_{r+1}, \qquad s = \eta / (\sqrt{v_{r+1}} + \tau)

    from m = 0 and v = tau^2, as printed: ``optax.adam`` also corrects the bias of the first steps,
    and is had by ``fed_opt(loss, server=lambda h: optax.adam(h.server_lr), ...)``.

    With a penalty, a sum over entries, the server's step is the prox in the metric of s,

    .. math:: w_{r+1} = \arg\min_x \; -\langle m_{r+1}, x \rangle + t_{r+1} \psi(x)
                        + \sum_j (x_j - w_{r,j})^2 / 2 s_j, \qquad
              t_{r+1} = \beta_1 t_r + (1 - \beta_1) \sum_m p_m \eta_c K_m,

    for l1 soft thresholding of entry j at :math:`s_j t \lambda`. Everyone with one full local step
    then has the minimiser of F + psi as its fixed point. The Euclidean prox has another one.
    Other penalties are refused.

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
    return fed_opt(loss, _by_entry(penalty, "fed_adam"), server=_adam, hparams=AdaptiveRates)


@takes(AdaptiveRates, "penalty")
def fed_yogi(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""FedYogi: as ``fed_adam``, with a second moment that is slower to forget large steps.

    .. math:: v_{r+1} = v_r - (1 - \beta_2) \Delta_r^2\, \mathrm{sign}(v_r - \Delta_r^2)

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.fed_yogi.Hparams(server_lr=0.03)
      AdaptiveRates(client_lr=0.01, server_lr=0.03, b1=0.9, b2=0.99, adaptivity=0.001,
                    penalty_scale=0.1)
    """
    return fed_opt(loss, _by_entry(penalty, "fed_yogi"), server=_yogi, hparams=AdaptiveRates)


def _by_entry(penalty: Penalty | None, whose: str) -> Penalty | None:
    return None if penalty is None else sum_over_entries(penalty, whose)


def _heavy_ball(hparams):
    return optimisers.heavy_ball(hparams.server_lr, hparams.momentum)


def _adagrad(hparams):
    return optimisers.adagrad(hparams.server_lr, hparams.b1, hparams.adaptivity)


def _adam(hparams):
    return optimisers.adam(hparams.server_lr, hparams.b1, hparams.b2, hparams.adaptivity)


def _yogi(hparams):
    return optimisers.yogi(hparams.server_lr, hparams.b1, hparams.b2, hparams.adaptivity)
