r"""The rates of federated composite optimisation, with explicit constants.

For Phi = F + psi with M clients, K local steps a round, R rounds, client rate eta and server rate
one, the theorems bound the gap Phi(w_hat) - Phi* at the averaged shadow iterate, the model of
``fcojax.theory.averages.shadow_average``. Norms come from an inner product, in which h is
1-strongly convex and every client's loss L-smooth.

Yuan, Zaheer and Reddi, "Federated composite optimization", ICML 2021, Lemma 4.4 and Theorems 4.1 to
4.3. The paper hides absolute constants; those given here follow from its proof, by the three-point
identity for h + t psi and the smoothness of F.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from fcojax.arguments import at_most, validated
from fcojax.types import Count, NonNegative, Positive


class Constants(NamedTuple):
    """The constants of a problem in the bounds.

    Attributes:
      distance: B, the Bregman divergence from the start to the optimum.
      smoothness: L, for every client's loss.
      variance: sigma^2, the variance of one stochastic gradient in the squared dual norm.
      num_clients: M, all of which take part unless a bound takes a ``cohort_size``; for weights
        that differ, 1 / sum_m p_m^2. See ``gap_from_gradients``.
    """

    distance: float
    smoothness: float
    variance: float
    num_clients: float


@validated
def largest_client_lr(constants: Constants) -> float:
    """Return the largest client rate for which the bounds hold, 1/(4L)."""
    return 1 / (4 * constants.smoothness)


@validated
def discrepancy_bound(
    constants: Constants, client_lr: Positive, num_steps: Count, heterogeneity: NonNegative
) -> float:
    r"""Bound the mean discrepancy of the clients' duals, for quadratic losses of one Hessian.

    .. math:: 1.72\, \eta^2 K \sigma^2 + 3.44\, \eta^2 K (K+1) \zeta^2, \quad 0 \text{ if } K = 1

    Args:
      constants: the constants of the problem.
      client_lr: eta, at most 1/(4L).
      num_steps: K.
      heterogeneity: zeta, the largest dual norm of a client's gradient minus the mean gradient.
    """
    _check_rate(constants, client_lr)
    if num_steps == 1:
        return 0.0
    noise = 1.72 * num_steps * constants.variance
    bias = 3.44 * num_steps * (num_steps + 1) * heterogeneity**2
    return client_lr**2 * (noise + bias)


@validated
def gap_from_discrepancy(
    constants: Constants,
    client_lr: Positive,
    num_steps: Count,
    num_rounds: Count,
    discrepancy: NonNegative,
) -> float:
    r"""Bound the gap by Lemma 4.4 from the measured mean discrepancy, with constants 1.

    .. math:: \frac{B}{\eta K R} + \frac{\eta \sigma^2}{M} + L \cdot \frac{1}{KR} \sum_{j}
              \frac{1}{M} \sum_m E \|\bar z_j - z_j^m\|_*^2

    Args:
      constants: the constants of the problem.
      client_lr: eta, at most 1/(4L).
      num_steps: K.
      num_rounds: R.
      discrepancy: the squared dual distance to the mean dual, averaged over clients and over the
        points at which gradients are taken.
    """
    _check_rate(constants, client_lr)
    start = constants.distance / (client_lr * num_steps * num_rounds)
    noise = client_lr * constants.variance / constants.num_clients
    return start + noise + constants.smoothness * discrepancy


@validated
def gap_from_heterogeneity(
    constants: Constants,
    client_lr: Positive,
    num_steps: Count,
    num_rounds: Count,
    heterogeneity: NonNegative,
    cohort_size: Count | None = None,
) -> float:
    """Bound the gap by Theorem 4.3, for quadratic losses of one Hessian.

    Args:
      constants: the constants of the problem.
      client_lr: eta, at most 1/(4L).
      num_steps: K.
      num_rounds: R.
      heterogeneity: zeta, the largest dual norm of a client's gradient minus the mean gradient.
      cohort_size: clients in a round; ``None`` for all. See ``gap_from_sampling``.
    """
    discrepancy = discrepancy_bound(constants, client_lr, num_steps, heterogeneity)
    sampling = 0.0
    if cohort_size is not None:
        sampling = gap_from_sampling(constants, client_lr, num_steps, heterogeneity, cohort_size)
        constants = constants._replace(num_clients=cohort_size)
    return gap_from_discrepancy(constants, client_lr, num_steps, num_rounds, discrepancy) + sampling


@validated
def gap_from_sampling(
    constants: Constants,
    client_lr: Positive,
    num_steps: Count,
    heterogeneity: NonNegative,
    cohort_size: Count,
    one_hessian: bool = True,
) -> float:
    r"""Bound what a uniform cohort of m clients, drawn anew in each round, adds to the gap.

    .. math:: s^2 \zeta \cdot \frac{1}{K} \sum_{k=1}^K \eta (k \zeta + \sqrt{k} \sigma), \qquad
              s^2 = \frac{M - m}{m (M - 1)}

    For quadratic losses of one Hessian and clients of equal weight, beside the bounds with m in
    place of M. The paper says that its theorems can be generalised; this is our derivation. The
    lemma bounds the gap of the mean loss of the cohort, :math:`F_S`, which differs from F by the
    linear function :math:`\langle \bar c - c_S, w \rangle`. A client's steps do not depend on who
    else was drawn, so the cohort's mean dual is a sample mean of the duals :math:`z^i_k` that all
    clients would have, and :math:`\bar c - c_S` has mean zero at the model of their population
    mean. By Cauchy and Schwarz the difference has at most the product of two standard deviations,

    .. math:: E \langle \bar c - c_S, \hat w_k - w^* \rangle \le s \zeta \cdot
              s \sqrt{E \tfrac1M \textstyle\sum_i \|z^i_k - \bar z_k\|_*^2}
              \le s^2 \zeta\, \eta (k \zeta + \sqrt{k} \sigma),

    the last because a gradient step in the dual does not expand distances.

    If Hessians differ and all gradients are at most G, the mean of :math:`\nabla F - \nabla F_S`
    is still zero at the model of the population mean. From there F rises by at most
    :math:`\frac L2 \| \cdot \|^2` beyond its tangent, and the convex :math:`F_S` does not fall
    below its own. A dual moves by at most :math:`k \eta G` in k steps, so the difference is at most

    .. math:: s^2 \eta k G^2 + \tfrac L2 s^2 \eta^2 k^2 G^2 .

    With unequal weights the mean over a uniform cohort is a ratio, whose expectation is not the
    weighted mean: FedDualAvg then has another limit, and no such bound holds.

    Args:
      constants: the constants of the problem, with M its number of clients.
      client_lr: eta, at most 1/(4L).
      num_steps: K.
      heterogeneity: zeta, the largest dual norm of a client's gradient minus the mean gradient;
        the bound G on stochastic gradients if Hessians differ.
      cohort_size: m.
      one_hessian: whether the losses are quadratic and have one Hessian.
    """
    _check_rate(constants, client_lr)
    num_clients = constants.num_clients
    at_most("cohort_size", cohort_size, num_clients, otherwise=", all clients")
    share = (num_clients - cohort_size) / (cohort_size * max(num_clients - 1, 1))
    steps = np.arange(1, num_steps + 1)
    noise, curvature = (constants.variance, 0.0) if one_hessian else (0.0, constants.smoothness)
    spread = client_lr * (steps * heterogeneity + np.sqrt(steps * noise))
    return float(share * np.mean(heterogeneity * spread + curvature / 2 * spread**2))


@validated
def gap_from_gradients(
    constants: Constants,
    client_lr: Positive,
    num_steps: Count,
    num_rounds: Count,
    largest_gradient: NonNegative,
    cohort_size: Count | None = None,
) -> float:
    r"""Bound the gap by Theorem 4.2, for stochastic gradients of bounded dual norm.

    The factor of the last term is that of norms from an inner product. In others the squared
    distance of a dual to the mean dual can be four times as large.

    .. math:: \frac{B}{\eta K R} + \frac{\eta \sigma^2}{M} + \eta^2 L G^2 \frac{(K-1)(2K-1)}{6}

    The paper's F is a plain mean. With weights :math:`p_m` of sum one the variance of the mean
    gradient is at most :math:`\sigma^2 \sum_m p_m^2` in place of :math:`\sigma^2 / M`. The last
    term bounds the mean over clients of what is bounded for each, so it stays.

    Args:
      constants: the constants of the problem.
      client_lr: eta, at most 1/(4L).
      num_steps: K.
      num_rounds: R.
      largest_gradient: G, the bound on the dual norm.
      cohort_size: clients in a round; ``None`` for all. See ``gap_from_sampling``.
    """
    squares = (num_steps - 1) * (2 * num_steps - 1) / 6
    discrepancy, sampling = client_lr**2 * largest_gradient**2 * squares, 0.0
    run, steepest = (client_lr, num_steps), largest_gradient
    if cohort_size is not None:
        sampling = gap_from_sampling(constants, *run, steepest, cohort_size, one_hessian=False)
        constants = constants._replace(num_clients=cohort_size)
    return gap_from_discrepancy(constants, *run, num_rounds, discrepancy) + sampling


@validated
def best_client_lr_from_heterogeneity(
    constants: Constants, num_steps: Count, num_rounds: Count, heterogeneity: NonNegative
) -> float:
    """Return the client rate that minimises the bound of Theorem 4.3."""
    unit = largest_client_lr(constants)
    per_square = discrepancy_bound(constants, unit, num_steps, heterogeneity) / unit**2
    return _best_client_lr(constants, num_steps, num_rounds, per_square)


@validated
def best_client_lr_from_gradients(
    constants: Constants, num_steps: Count, num_rounds: Count, largest_gradient: NonNegative
) -> float:
    """Return the client rate that minimises the bound of Theorem 4.2."""
    per_square = largest_gradient**2 * (num_steps - 1) * (2 * num_steps - 1) / 6
    return _best_client_lr(constants, num_steps, num_rounds, per_square)


@validated
def rounds_while_local_steps_help(constants: Constants, largest_gradient: Positive) -> float:
    r"""Return the rounds up to which Theorem 4.2, at its best rate, is below Theorem 4.1.

    .. math:: L^{1/3} B^{2/3} G^{2/3} R^{-2/3} \le L B R^{-1} \iff R \le L^2 B / G^2

    These are the terms that remain for many local steps: the drift of local steps, and the start in
    Theorem 4.1 with one step per round. For more rounds large batches are better than local steps.
    """
    return constants.smoothness**2 * constants.distance / largest_gradient**2


@validated
def gap_of_small_steps(
    constants: Constants, round_lr: Positive, num_steps: Count, num_rounds: Count
) -> float:
    r"""Bound the gap by Theorem 4.1, for a client rate that tends to zero at fixed eta_s eta_c.

    With :math:`\gamma = \eta_s \eta_c K` (``round_lr``) held fixed a round is one step of dual
    averaging with a batch of M K gradients, and the mean of the models after each round has gap

    .. math:: \frac{B}{\gamma R} + \frac{\gamma \sigma^2}{M K} + O(\eta_c).

    It holds for FedDualAvg and FedMiD-OSP. The theorem states it for FedMiD too, where it is false,
    for a finite psi and for an indicator: a mean of projected steps does not follow the mean
    gradient. For linear losses with slopes -a and b on [-1, 1], :math:`2 b \le a`, FedMiD's gap
    stays above :math:`\gamma b (a - b) / 8`, while the bound falls as 1 / R.
    """
    _check_rate(constants, round_lr)
    noise = round_lr * constants.variance / (constants.num_clients * num_steps)
    return constants.distance / (round_lr * num_rounds) + noise


@validated
def gap_of_corrected_steps(
    constants: Constants,
    round_lr: Positive,
    num_rounds: Count,
    largest_gradient: NonNegative,
    *,
    weights: ArrayLike,
    probabilities: ArrayLike,
    num_steps: Count = 1,
    largest_slope: NonNegative = 0.0,
) -> float:
    r"""Bound the gap as ``gap_of_small_steps`` does, for clients that take part at random.

    Client m takes part with probability :math:`q_m`, independently of the others, and counts with
    :math:`b_m = p_m / q_m`, as in ``Plan(correct="known")`` with ``coin_flips``:

    .. math:: \frac{B}{\gamma R} + \gamma \left( \sqrt{\frac{\sigma^2}{K} \sum_m \frac{p_m^2}{q_m}
              + V G^2} + \sqrt V G_\psi \right)^2, \qquad V = \sum_m p_m^2 \frac{1 - q_m}{q_m}

    The paper says that its theorems can be generalised; this is our derivation. A round adds
    :math:`-\gamma \sum_{m \in S} b_m g_m(w_r)` to the dual and :math:`\gamma W` to the elapsed
    time, where :math:`W = \sum_{m \in S} b_m` has mean one. The three-point identity holds for
    every :math:`W \ge 0`. With the smoothness of F and :math:`\Delta = w_{r+1} - w_r` it gives in
    expectation

    .. math:: \gamma (\Phi(w_{r+1}) - \Phi^*) \le D_r - D_{r+1} - \tfrac{1 - \gamma L}{2}
              \|\Delta\|^2 - \gamma \langle N_r, \Delta \rangle - \gamma (W - 1)
              (\psi(w_{r+1}) - \psi(w_r))

    for :math:`N_r = \sum_{m \in S} b_m g_m(w_r) - \nabla F(w_r)`, since :math:`w_r` does not
    depend on the cohort of this round. The last three terms are at most
    :math:`\gamma^2 (\|N_r\|_* + |W - 1| G_\psi)^2`, with :math:`E (W - 1)^2 = V` and
    :math:`E \|N_r\|_*^2 \le \frac{\sigma^2}{K} \sum_m p_m^2 / q_m + V G^2`. The Hessians of the
    clients may differ. If all :math:`q_m` are one this is Theorem 4.1.

    Args:
      constants: the constants of the problem.
      round_lr: gamma, at most 1/(4L); for one local step at server rate one it is the client rate.
      num_rounds: R.
      largest_gradient: G, the largest dual norm of a client's gradient at the models of the run.
      weights: the p_m, up to a common factor.
      probabilities: the q_m.
      num_steps: K; if it is more than one, the bound is for a client rate that tends to zero.
      largest_slope: the Lipschitz constant of psi; zero for a constraint, which does not depend on
        the elapsed time.
    """
    _check_rate(constants, round_lr)
    p, q = np.asarray(weights, float), np.asarray(probabilities, float)
    if not np.all((q > 0) & (q <= 1)):
        raise ValueError("the probabilities have to be above 0 and at most 1.")
    squares = (p / p.sum()) ** 2 / q
    sampling = np.sum(squares * (1 - q))
    noise = constants.variance / num_steps * np.sum(squares) + sampling * largest_gradient**2
    deviation = np.sqrt(noise) + np.sqrt(sampling) * largest_slope
    return float(constants.distance / (round_lr * num_rounds) + round_lr * deviation**2)


@validated
def best_round_lr(constants: Constants, num_steps: Count, num_rounds: Count) -> float:
    """Return the ``round_lr`` that minimises ``gap_of_small_steps``."""
    if constants.variance == 0:
        return largest_client_lr(constants)
    gradients = constants.num_clients * num_steps
    balanced = np.sqrt(constants.distance * gradients / (constants.variance * num_rounds))
    return float(min(largest_client_lr(constants), balanced))


def _best_client_lr(
    constants: Constants, num_steps: Count, num_rounds: Count, per_square: float
) -> float:
    r"""Minimise :math:`B/(\eta K R) + \eta \sigma^2/M + L d \eta^2` up to 1/(4L)."""
    start = constants.distance / (num_steps * num_rounds)
    noise = constants.variance / constants.num_clients
    curvature = 2 * constants.smoothness * per_square
    low, high = 0.0, largest_client_lr(constants)
    for _ in range(200):  # bisection: the derivative times eta^2 grows with eta
        middle = (low + high) / 2
        if curvature * middle**3 + noise * middle**2 < start:
            low = middle
        else:
            high = middle
    return high


def quadratic_constants(
    hessian: np.ndarray,
    linear: np.ndarray,
    noise: np.ndarray,
    start: np.ndarray,
    optimum: ArrayLike,
) -> tuple[Constants, float]:
    r"""Return constants and zeta of clients :math:`F_m(w) = w^T Q w / 2 + c_m^T w` with noise.

    The norm is :math:`\|w\|^2 = w^T Q w / \|Q\|_2`, in which F is exactly :math:`\|Q\|_2`-smooth
    and the Euclidean h is 1-strongly convex; its dual is :math:`\|Q\|_2\, z^T Q^{-1} z`.

    Args:
      hessian: Q.
      linear: the c_m, one row per client.
      noise: the noise of a client's gradients, [clients, draws, dim], each draw equally likely and
        their mean zero; the largest variance of a client is used.
      start: w_0.
      optimum: w*, with penalty.
    """
    largest = float(np.linalg.eigvalsh(hessian)[-1])
    squared = squared_dual_norm(hessian)
    variances = squared(noise).mean(axis=-1)
    constants = Constants(
        distance=float(0.5 * np.sum((np.asarray(optimum) - start) ** 2)),
        smoothness=largest,
        variance=float(np.max(variances)),
        num_clients=linear.shape[0],
    )
    heterogeneity = float(np.sqrt(squared(linear - linear.mean(axis=0)).max()))
    return constants, heterogeneity


def squared_dual_norm(hessian: np.ndarray) -> Callable[[Any], Any]:
    r"""Return the function :math:`z \mapsto \|Q\|_2\, z^T Q^{-1} z` over the last axis."""
    inverse = np.linalg.eigvalsh(hessian)[-1] * np.linalg.inv(hessian)
    return lambda z: ((z @ inverse) * z).sum(axis=-1)


def _check_rate(constants: Constants, rate: float) -> None:
    largest = largest_client_lr(constants)
    if rate > largest * (1 + 1e-12):
        raise ValueError(f"the rate is {rate:g}; pass at most 1/(4L) = {largest:g}.")
