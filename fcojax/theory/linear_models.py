r"""Ridge and logistic regression on clients, with the constants of the theorems.

.. math:: f_k(x) = \tfrac{1}{m_k} \sum_j \ell(a_{kj}^T x, b_{kj}) + \tfrac{\lambda}{2} |x|^2,
          \qquad f = \sum_k p_k f_k

Expectations over an example drawn at random are exact sums here, not estimates.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fcojax.arguments import validated
from fcojax.theory.least_squares import Matrix, Vector, normalised, require_pairs
from fcojax.types import NonNegative

Elementwise = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Link(NamedTuple):
    """A loss of the prediction u and the target b, with its derivatives in u.

    Attributes:
      value: a function of (u, b).
      slope: its first derivative.
      curvature: its second derivative.
      max_slope: the largest slope, in magnitude.
      max_curvature: the largest curvature, in magnitude.
    """

    value: Elementwise
    slope: Elementwise
    curvature: Elementwise
    max_slope: float
    max_curvature: float


def _logistic(u: np.ndarray) -> np.ndarray:
    """The logistic function, without overflow."""
    return np.exp(-np.logaddexp(0, -u))


SQUARED = Link(
    value=lambda u, b: (u - b) ** 2 / 2,
    slope=lambda u, b: u - b,
    curvature=lambda u, b: np.ones_like(u),
    max_slope=np.inf,
    max_curvature=1.0,
)
LOGISTIC = Link(
    value=lambda u, b: np.logaddexp(0, -b * u),
    slope=lambda u, b: -b * _logistic(-b * u),
    curvature=lambda u, b: _logistic(u) * _logistic(-u),
    max_slope=1.0,
    max_curvature=0.25,
)


class Constants(NamedTuple):
    r"""The constants of a problem in the theorems.

    Attributes:
      strong_convexity: alpha, a lower bound on the curvature of every f_k.
      smoothness: beta, an upper bound.
      optimum: the minimiser x* of f.
      minimum: f* = f(x*).
      client_minima: f_k*, the minimum of each f_k.
      heterogeneity: :math:`\Gamma = f^* - \sum_k p_k f_k^* \ge 0`, zero if and only if the clients
        of positive weight share a minimiser.
    """

    strong_convexity: float
    smoothness: float
    optimum: Vector
    minimum: float
    client_minima: Vector
    heterogeneity: float

    @property
    def condition(self) -> float:
        """The condition number kappa = beta / alpha."""
        return self.smoothness / self.strong_convexity


class LinearModel(NamedTuple):
    """Clients with a linear model each; made by ``ridge_regression`` or ``logistic_regression``.

    Points of all clients have axes [..., clients, dim], so one call evaluates a whole run.

    Attributes:
      link: the loss of one example.
      features: the rows a_kj of each client.
      targets: the numbers b_kj of each client.
      weights: p_k, of sum one.
      ridge: lambda.
    """

    link: Link
    features: tuple[Matrix, ...]
    targets: tuple[Vector, ...]
    weights: Vector
    ridge: float

    @property
    def dim(self) -> int:
        """The number of features."""
        return self.features[0].shape[1]

    def values(self, points: np.ndarray) -> np.ndarray:
        """f_k at client k's point, with axes [..., clients]."""
        losses = self._each(lambda u, a, b: self.link.value(u, b).mean(axis=-1), points)
        return np.stack(losses, axis=-1) + self.ridge / 2 * np.sum(points**2, axis=-1)

    def objective(self, point: np.ndarray) -> np.ndarray:
        """Return f at one point for all clients, or at several, with the coordinates last."""
        return self.values(self._for_each_client(point)) @ self.weights

    def gradients(self, points: np.ndarray) -> np.ndarray:
        """The gradient of f_k at client k's point, with axes [..., clients, dim]."""
        return self._mean_slopes(points) + self.ridge * points

    def noise(self, points: np.ndarray, batch_size: int | None = 1) -> np.ndarray:
        r"""The variance sigma_k^2 of client k's stochastic gradient at its point.

        With ``batch_size`` examples drawn with replacement; zero for ``None``, the full gradient.
        """
        if batch_size is None:
            return np.zeros(points.shape[:-1])
        squares = self._each(
            lambda u, a, b: self.link.slope(u, b) ** 2 @ np.sum(a**2, axis=1) / len(a), points
        )
        means = np.sum(self._mean_slopes(points) ** 2, axis=-1)
        return (np.stack(squares, axis=-1) - means) / batch_size

    def second_moments(self, points: np.ndarray, batch_size: int | None = 1) -> np.ndarray:
        """The mean squared norm of client k's stochastic gradient at its point."""
        squared_mean = np.sum(self.gradients(points) ** 2, axis=-1)
        return squared_mean + self.noise(points, batch_size)

    def hessians(self, point: Vector) -> np.ndarray:
        """The Hessian of every f_k at one point, stacked."""
        ridge = self.ridge * np.eye(self.dim)
        pairs = zip(self.features, self.targets, strict=True)
        each = [(a.T * self.link.curvature(a @ point, b)) @ a / len(a) + ridge for a, b in pairs]
        return np.stack(each)

    def covariances(self, point: Vector) -> np.ndarray:
        """The covariance of one example's gradient at one point, for every client, stacked."""
        result = []
        for a, b in zip(self.features, self.targets, strict=True):
            gradients = self.link.slope(a @ point, b)[:, None] * a
            centred = gradients - gradients.mean(axis=0)
            result.append(centred.T @ centred / len(a))
        return np.stack(result)

    def minimiser(self, weights: Vector | None = None) -> Vector:
        """The minimiser of the weighted sum of the f_k, to rounding; ``weights`` default to p_k."""
        weights = self.weights if weights is None else weights

        def gradient(x):
            return weights @ self.gradients(self._for_each_client(x))

        x = np.zeros(self.dim)
        slope = gradient(x)
        while True:
            step = np.linalg.solve(np.tensordot(weights, self.hessians(x), axes=1), slope)
            # A short step in Newton's direction shrinks the gradient; once no fraction of the
            # step does, the gradient is rounding error.
            for fraction in 0.5 ** np.arange(12):
                moved = gradient(x - fraction * step)
                if np.linalg.norm(moved) < np.linalg.norm(slope):
                    x, slope = x - fraction * step, moved
                    break
            else:
                return x

    def constants(self) -> Constants:
        """The constants of the problem; alpha and beta hold on all of space."""
        grams = [np.linalg.eigvalsh(a.T @ a / len(a)) for a in self.features]
        least = min(gram[0] for gram in grams) if self.link is SQUARED else 0.0
        alpha = float(max(least, 0.0) + self.ridge)
        beta = float(self.link.max_curvature * max(gram[-1] for gram in grams) + self.ridge)
        if alpha <= 1e-14 * beta:
            raise ValueError(
                f"the strong convexity of some client is {alpha:g}; pass a positive ridge."
            )
        optimum = self.minimiser()
        alone = np.stack([self.minimiser(only) for only in np.eye(len(self.weights))])
        minimum, minima = float(self.objective(optimum)), self.values(alone)
        return Constants(
            alpha, beta, optimum, minimum, minima, float(minimum - self.weights @ minima)
        )

    def _for_each_client(self, point: np.ndarray) -> np.ndarray:
        point = np.asarray(point, float)[..., None, :]
        return np.broadcast_to(point, (*point.shape[:-2], len(self.weights), self.dim))

    def _mean_slopes(self, points: np.ndarray) -> np.ndarray:
        """The gradients without the ridge."""
        slopes = self._each(lambda u, a, b: self.link.slope(u, b) @ a / len(a), points)
        return np.stack(slopes, axis=-2)

    def _each(self, function: Callable, points: np.ndarray) -> list[np.ndarray]:
        """``function(predictions, features, targets)`` of each client at its point."""
        clients = enumerate(zip(self.features, self.targets, strict=True))
        return [function(points[..., k, :] @ a.T, a, b) for k, (a, b) in clients]


@validated
def ridge_regression(
    features: Sequence[Matrix],
    targets: Sequence[Vector],
    *,
    ridge: NonNegative,
    weights: Sequence[float] | Vector | None = None,
) -> LinearModel:
    r"""Return the model with clients :math:`|A_k x - b_k|^2 / (2 m_k) + \lambda |x|^2 / 2`.

    Args:
      features: the A_k, one row per example.
      targets: the b_k.
      ridge: lambda.
      weights: the p_k up to a factor; by default the numbers of examples.

    Example:
      >>> model = ridge_regression([np.eye(1), np.eye(1)], [np.ones(1), 3 * np.ones(1)], ridge=1.0)
      >>> constants = model.constants()
      >>> constants.optimum.tolist(), constants.minimum, constants.heterogeneity
      ([1.0], 1.5, 0.25)
    """
    return _linear_model(SQUARED, features, targets, ridge, weights)


@validated
def logistic_regression(
    features: Sequence[Matrix],
    targets: Sequence[Vector],
    *,
    ridge: NonNegative,
    weights: Sequence[float] | Vector | None = None,
) -> LinearModel:
    r"""Clients with the mean of :math:`\log(1 + \exp(-b\,a^T x))` plus :math:`\lambda |x|^2 / 2`.

    Args:
      features: one row per example.
      targets: labels, 1 or -1.
      ridge: lambda.
      weights: the p_k up to a factor; by default the numbers of examples.
    """
    others = [label for b in targets for label in np.unique(b) if label not in (-1, 1)]
    if others:
        raise ValueError(f"a target is {others[0]}; pass labels that are 1 or -1.")
    return _linear_model(LOGISTIC, features, targets, ridge, weights)


def _linear_model(link, features, targets, ridge, weights) -> LinearModel:
    require_pairs(features, targets)
    weights = [len(b) for b in targets] if weights is None else weights
    a, b = (tuple(np.asarray(x, float) for x in part) for part in (features, targets))
    return LinearModel(link, a, b, normalised(weights, len(features)), float(ridge))
