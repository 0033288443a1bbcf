r"""Local SGD: the 1/T theorem with computable constants, its lemmas, and exact limits.

Li, Huang, Yang, Wang and Zhang, "On the convergence of FedAvg on non-IID data", ICLR 2020, Theorem
1 with full participation. Steps are counted from t = 0, so :math:`s_t = 2 / (\alpha (\gamma + t))`
with :math:`\gamma = \max(8 \kappa, E)`, and the bound holds with gamma + T where the paper has
gamma + T - 1. Stochastic gradients are means of ``batch_size`` examples drawn with replacement, or
full gradients for ``None``. Points of all clients have axes [..., clients, dim].
"""

import math
from typing import NamedTuple

import numpy as np

from fcojax.algorithms.averages import LocalSGDHparams
from fcojax.arguments import validated
from fcojax.theory.linear_models import Constants, LinearModel
from fcojax.types import Count, CountOrZero, Positive


@validated
def offset(constants: Constants, num_steps: Positive) -> float:
    """Return gamma of the step sizes, ``max(8 kappa, E)``."""
    return max(8 * constants.condition, float(num_steps))


@validated
def schedule(constants: Constants, num_steps: Count) -> LocalSGDHparams:
    """Return the theorem's step sizes as hyperparameters of ``fcojax.algorithms.local_sgd``."""
    gamma = offset(constants, num_steps)
    return LocalSGDHparams(2 / (constants.strong_convexity * gamma), 1 / gamma)


@validated
def num_messages(total_steps: CountOrZero, num_steps: Count) -> int:
    """Return the uploads and downloads of one client in ``total_steps`` steps, E per round.

    Example:
      >>> num_messages(100, 5)
      40
    """
    if total_steps % num_steps:
        raise ValueError(
            f"total_steps is {total_steps}; pass a multiple of num_steps, {num_steps}."
        )
    return 2 * (total_steps // num_steps)


class Bound(NamedTuple):
    r"""The theorem for one problem and E; made by ``a_priori`` or ``a_posteriori``.

    Attributes:
      constants: alpha, beta, Gamma.
      num_steps: E, local steps a round.
      noise: :math:`\sum_k p_k^2 \sigma_k^2`.
      second_moment: :math:`G^2`, which bounds the mean squared norm of all stochastic gradients.
      start_distance: :math:`\Delta_0 = |x_0 - x^*|^2`.
    """

    constants: Constants
    num_steps: int
    noise: float
    second_moment: float
    start_distance: float

    @property
    def step_error(self) -> float:
        r""":math:`B = \sum_k p_k^2 \sigma_k^2 + 6 \beta \Gamma + 8 (E - 1)^2 G^2`."""
        spread = 6 * self.constants.smoothness * self.constants.heterogeneity
        return self.noise + spread + 8 * (self.num_steps - 1) ** 2 * self.second_moment

    def gap(self, total_steps: np.ndarray | int) -> np.ndarray | float:
        r"""Bound E f(x_T) - f* after ``total_steps`` = T = 0, 1, 2, ... local steps.

        .. math:: \frac{\kappa}{\gamma + T} \Big(\frac{2 B}{\alpha} +
                  \frac{\alpha \gamma}{2} \Delta_0\Big)
        """
        alpha, gamma = self.constants.strong_convexity, offset(self.constants, self.num_steps)
        start = alpha * gamma * self.start_distance / 2
        return (
            self.constants.condition * (2 * self.step_error / alpha + start) / (gamma + total_steps)
        )

    def distance(self, total_steps: np.ndarray | int) -> np.ndarray | float:
        r"""Bound E|x_T - x*|^2 by :math:`\max(4 B / \alpha^2, \gamma \Delta_0) / (\gamma + T)`."""
        alpha, gamma = self.constants.strong_convexity, offset(self.constants, self.num_steps)
        largest = max(4 * self.step_error / alpha**2, gamma * self.start_distance)
        return largest / (gamma + total_steps)

    @property
    def best_num_steps(self) -> float:
        """The real number E for which ``gap`` guarantees a small error in the fewest rounds.

        The other constants are held fixed, for whichever E they were measured.
        """
        alpha, knee = self.constants.strong_convexity, 8 * self.constants.condition
        drift = 16 * self.second_moment / alpha
        rest = 2 * self._replace(num_steps=1).step_error / alpha
        start = alpha * knee * self.start_distance / 2
        below = math.sqrt((rest + start + drift) / drift)
        # Above 8 kappa gamma equals E, and the term of the start no longer falls with E.
        return below if below <= knee else max(knee, math.sqrt((rest + drift) / drift))


@validated
def a_posteriori(
    model: LinearModel,
    constants: Constants,
    points: np.ndarray,
    num_steps: Count,
    batch_size: Count | None = 1,
) -> Bound:
    """Return the theorem with the largest moments at ``points`` that runs have visited.

    Args:
      model: the problem.
      constants: ``model.constants()``.
      points: axes [..., clients, dim], as from ``fcojax.theory.local_points``; the first one is the
        start of the runs.
      num_steps: E.
      batch_size: examples of a stochastic gradient.
    """
    over_visits = tuple(range(points.ndim - 2))
    noise = model.noise(points, batch_size).max(axis=over_visits)
    second_moment = model.second_moments(points, batch_size).max()
    start = points.reshape(-1, *points.shape[-2:])[0, 0]
    distance = float(np.sum((start - constants.optimum) ** 2))
    total = float(np.sum(model.weights**2 * noise))
    return Bound(constants, num_steps, total, float(second_moment), distance)


@validated
def a_priori(
    model: LinearModel, constants: Constants, num_steps: Count, batch_size: Count | None = 1
) -> Bound:
    r"""Return the theorem for runs that start at zero, with moments that hold for all draws.

    The iterates stay in a ball of radius :math:`\max |\ell'| |a| / \lambda` if the loss has bounded
    slopes, and of radius :math:`\max |b| |a| / \lambda` for ridge regression, where the first step
    must satisfy :math:`s_0 (\max |a|^2 + \lambda) \le 1`.

    Args:
      model: the problem.
      constants: ``model.constants()``.
      num_steps: E.
      batch_size: examples of a stochastic gradient.

    Raises:
      ValueError: if that condition fails or the ridge is zero.
    """
    norms = [np.linalg.norm(a, axis=1) for a in model.features]
    longest = max(float(norm.max()) for norm in norms)
    if math.isfinite(model.link.max_slope):
        radius = model.link.max_slope * longest / model.ridge
    else:
        first = float(schedule(constants, num_steps).client_lr) * (longest**2 + model.ridge)
        if first > 1:
            raise ValueError(
                f"the first step times the largest curvature of one example is {first:.3g}, above "
                "1; scale the features down, or use a_posteriori."
            )
        pairs = zip(norms, model.targets, strict=True)
        radius = max(float(np.max(norm * np.abs(b))) for norm, b in pairs) / model.ridge
    steepest = [
        np.minimum(
            model.link.max_slope,
            np.abs(model.link.slope(np.zeros_like(b), b))
            + model.link.max_curvature * norm * radius,
        )
        for norm, b in zip(norms, model.targets, strict=True)
    ]
    slopes = [slope * norm for slope, norm in zip(steepest, norms, strict=True)]
    noise = np.zeros(len(norms))
    if batch_size is not None:
        noise = np.array([np.mean(slope**2) for slope in slopes]) / batch_size
    largest = max(float(slope.max()) for slope in slopes) + model.ridge * radius
    distance = float(np.sum(constants.optimum**2))
    return Bound(
        constants, num_steps, float(np.sum(model.weights**2 * noise)), largest**2, distance
    )


class Sides(NamedTuple):
    """An inequality ``left <= right``, with one entry per state."""

    left: np.ndarray
    right: np.ndarray


@validated
def contraction_lemma(
    model: LinearModel, constants: Constants, points: np.ndarray, step_size: np.ndarray | float
) -> Sides:
    r"""One step of the mean gradient from the mean of the clients' points contracts.

    .. math:: |\bar x - s \bar g - x^*|^2 \le (1 - s \alpha) |\bar x - x^*|^2 + 6 \beta s^2 \Gamma
              + 2 \sum_k p_k |\bar x - x_k|^2, \qquad \bar g = \sum_k p_k \nabla f_k(x_k)

    It needs s <= 1 / (4 beta).
    """
    mean, moved = _mean_step(model, points, step_size)
    before = np.sum((mean - constants.optimum) ** 2, axis=-1)
    spread = 6 * constants.smoothness * step_size**2 * constants.heterogeneity
    right = (1 - step_size * constants.strong_convexity) * before + spread
    left = np.sum((moved - constants.optimum) ** 2, axis=-1)
    return Sides(left, right + 2 * consensus_error(model, points))


@validated
def noise_lemma(
    model: LinearModel, points: np.ndarray, noise: float, batch_size: int | None = 1
) -> Sides:
    r"""The mean stochastic gradient has variance at most ``noise``, :math:`\sum p_k^2 \sigma_k^2`.

    .. math:: E|g - \bar g|^2 = \sum_k p_k^2 \sigma_k^2(x_k)

    The left side is exact, because clients draw independently.
    """
    left = model.noise(points, batch_size) @ model.weights**2
    return Sides(left, np.full_like(left, noise))


@validated
def drift_lemma(
    model: LinearModel, bound: Bound, points: np.ndarray, step_size: np.ndarray | float
) -> Sides:
    r"""The expected distance of the clients' points to their mean is bounded.

    .. math:: E \sum_k p_k |\bar x - x_k|^2 \le 4 s_t^2 (E - 1)^2 G^2

    It needs steps that do not grow, and that at most halve within a round.
    """
    left = consensus_error(model, points)
    right = 4 * step_size**2 * (bound.num_steps - 1) ** 2 * bound.second_moment
    return Sides(left, np.broadcast_to(right, left.shape))


@validated
def one_step(
    model: LinearModel,
    bound: Bound,
    points: np.ndarray,
    step_size: np.ndarray | float,
    batch_size: int | None = 1,
) -> Sides:
    r"""The recursion behind the theorem, in the mean over all draws up to step t.

    .. math:: \Delta_{t+1} \le (1 - s_t \alpha) \Delta_t + s_t^2 B

    The left side is the exact expectation over the draw of step t, given the points.
    """
    constants = bound.constants
    mean, moved = _mean_step(model, points, step_size)
    variance = model.noise(points, batch_size) @ model.weights**2
    left = np.sum((moved - constants.optimum) ** 2, axis=-1) + step_size**2 * variance
    before = np.sum((mean - constants.optimum) ** 2, axis=-1)
    contracted = (1 - step_size * constants.strong_convexity) * before
    return Sides(left, contracted + step_size**2 * bound.step_error)


@validated
def consensus_error(model: LinearModel, points: np.ndarray) -> np.ndarray:
    """Return the weighted mean squared distance of the clients' points to their mean."""
    mean = np.einsum("k,...ki->...i", model.weights, points)
    return np.sum((points - mean[..., None, :]) ** 2, axis=-1) @ model.weights


def _mean_step(model, points, step_size):
    mean = np.einsum("k,...ki->...i", model.weights, points)
    slope = np.einsum("k,...ki->...i", model.weights, model.gradients(points))
    return mean, mean - np.asarray(step_size)[..., None] * slope


@validated
def noise_limit(model: LinearModel, constants: Constants, batch_size: Count = 1) -> float:
    r"""Return the limit of (gamma + T)(E f(x_T) - f*), the same for every fixed E.

    .. math:: \tfrac12 \mathrm{tr}(H V), \qquad (c H - \tfrac12 I) V + V (c H - \tfrac12 I) =
              c^2 \sum_k p_k^2 \mathrm{Cov}_k, \qquad c = 2 / \alpha

    with H the Hessian of f and Cov_k the covariance of client k's stochastic gradient, both at x*.
    The number of local steps enters only in the next order.
    """
    c = 2 / constants.strong_convexity
    covariances = model.covariances(constants.optimum) / batch_size
    curvatures, axes = np.linalg.eigh(_mean_hessian(model, constants))
    covariance = axes.T @ np.tensordot(model.weights**2, covariances, axes=1) @ axes
    # In the eigenbasis of H only the diagonal of V enters.
    return float(np.sum(curvatures * c**2 * np.diag(covariance) / (2 * (2 * c * curvatures - 1))))


@validated
def drift_limit(model: LinearModel, constants: Constants, num_steps: Count) -> float:
    r"""Return the limit of (gamma + T)^2 (f(x_T) - f*) with full gradients; zero for E = 1.

    .. math:: \tfrac{c^2}{2} w^T H w, \qquad (c H - I) w = \tfrac{c (E - 1)}{2}
              \sum_k p_k H_k \nabla f_k(x^*), \qquad c = 2 / \alpha

    with the Hessians H_k of the clients and H of f at x*.
    """
    c = 2 / constants.strong_convexity
    hessians = model.hessians(constants.optimum)
    slopes = model.gradients(np.broadcast_to(constants.optimum, (len(hessians), model.dim)))
    drift = c * (num_steps - 1) / 2 * np.einsum("k,kij,kj->i", model.weights, hessians, slopes)
    hessian = _mean_hessian(model, constants)
    shift = np.linalg.solve(c * hessian - np.eye(model.dim), drift)
    return float(c**2 * shift @ hessian @ shift / 2)


def _mean_hessian(model: LinearModel, constants: Constants) -> np.ndarray:
    return np.tensordot(model.weights, model.hessians(constants.optimum), axes=1)
