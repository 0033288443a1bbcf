r"""FedGD on quadratic clients in closed form: every iterate, the limit, the rate and the bias.

Client k minimises :math:`f_k(x) = x^T H_k x / 2 - h_k^T x`. With :math:`S_k = \sum_{e<E} (I - s
H_k)^e` a round of E steps of size s is the affine map :math:`x \mapsto M x + C`, where :math:`M =
\sum_k p_k (I - s H_k)^E` and :math:`C = s \sum_k p_k S_k h_k`. No matrix power is formed: the
clients are factored once, after which any s, E and number of rounds cost the same.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fcojax.arguments import shown, validated
from fcojax.types import Count, CountOrZero, NonNegative, Positive

Matrix = np.ndarray
Vector = np.ndarray


class Powers(NamedTuple):
    r"""Powers of 1 - z and their sums, entry by entry of z.

    Attributes:
      power: :math:`(1 - z)^E`.
      complement: :math:`1 - (1 - z)^E`, with full relative accuracy for small z.
      total: :math:`\sum_{e < E} (1 - z)^e`, which is E at z = 0.
    """

    power: np.ndarray
    complement: np.ndarray
    total: np.ndarray


@validated
def powers(z: np.ndarray | float, num_times: CountOrZero) -> Powers:
    """Return the powers of 1 - z without cancellation, for z >= 0.

    Above z = 2 the powers grow, and may overflow to infinity.

    Args:
      z: one number or an array.
      num_times: E, of any size.

    Example:
      >>> powers(1e-8, 10**8).complement.round(9)  # 1 - 1 / e, and half of 1e-8 / e more
      np.float64(0.632120561)
      >>> powers(np.array([0.0, 1.0, 1.5]), 3).total.tolist()
      [3.0, 1.0, 0.75]
    """
    z = np.asarray(z, float)
    if num_times == 0:
        return Powers(np.ones_like(z), np.zeros_like(z), np.zeros_like(z))
    with np.errstate(divide="ignore", over="ignore"):
        exponent = num_times * np.log(np.abs(1 - z))
        exponent = np.where(z < 0.5, num_times * np.log1p(-np.minimum(z, 0.5)), exponent)
        negative = (z > 1) & (num_times % 2 == 1)
        power = np.where(negative, -np.exp(exponent), np.exp(exponent))
        complement = np.where(negative, 1 + np.exp(exponent), -np.expm1(exponent))
    total = np.where(z == 0, float(num_times), complement / np.where(z == 0, 1, z))
    return Powers(power, complement, total)


@validated
def normalised(weights: Sequence[float] | Vector | None, num_clients: Count) -> Vector:
    """Return the p_k, one per client and of sum one; equal for ``None``."""
    weights = np.ones(num_clients) if weights is None else np.asarray(weights, float)
    finite = np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0
    if weights.shape != (num_clients,) or not finite:
        raise ValueError(
            f"weights is {shown(weights)}; pass {num_clients} finite numbers of at least 0, one "
            "per client and not all 0."
        )
    return weights / weights.sum()


def require_pairs(features: Sequence[Matrix], targets: Sequence[Vector]) -> None:
    """Raise ``ValueError`` unless there is a matrix and a vector of as many rows per client."""
    shapes = [np.shape(a) for a in features], [np.shape(b) for b in targets]
    matrices = bool(shapes[0]) and all(len(shape) == 2 for shape in shapes[0])
    if not matrices or shapes[1] != [shape[:1] for shape in shapes[0]]:
        raise ValueError(
            f"features have shapes {shapes[0]} and targets {shapes[1]}; pass one matrix per "
            "client, and one target for each of its rows."
        )


class QuadraticClients(NamedTuple):
    """Factored clients; the Hessian of client k has the range spanned by the rows of ``axes[k]``.

    Attributes:
      weights: p_k, of sum one.
      axes: orthonormal rows, the eigenvectors of H_k with a positive eigenvalue.
      curvatures: those eigenvalues.
      minimisers: coordinates along the axes of the minimisers of f_k.
    """

    weights: Vector
    axes: tuple[Matrix, ...]
    curvatures: tuple[Vector, ...]
    minimisers: tuple[Vector, ...]

    @property
    def smoothness(self) -> float:
        """The largest eigenvalue of any H_k; steps below 2 over it converge."""
        return max(float(curvature.max(initial=0.0)) for curvature in self.curvatures)


@validated
def least_squares_clients(
    features: Sequence[Matrix],
    targets: Sequence[Vector],
    *,
    reading: Literal["sum", "mean"],
    ridge: NonNegative = 0.0,
) -> QuadraticClients:
    r"""Factor clients with m_k examples :math:`(A_k, b_k)` each, in one of two readings.

    ========  ==================================================================  =========
    reading   f_k(x)                                                              p_k
    ========  ==================================================================  =========
    "sum"     :math:`|A_k x - b_k|^2 / 2 + \mathrm{ridge}\,|x|^2 / 2`             1 / K
    "mean"    :math:`|A_k x - b_k|^2 / (2 m_k) + \mathrm{ridge}\,|x|^2 / 2`       m_k / m
    ========  ==================================================================  =========

    Without a ridge both have the pooled least-squares solution as minimiser, but FedGD's limits
    differ for E > 1, because the clients' steps have different sizes.

    Args:
      features: the A_k, one row per example.
      targets: the b_k.
      reading: which row of the table.
      ridge: the weight of the ridge term.
    """
    require_pairs(features, targets)
    sizes = np.array([len(target) for target in targets], float)
    factored = [
        _factor(
            np.asarray(a, float), np.asarray(b, float), len(b) if reading == "mean" else 1, ridge
        )
        for a, b in zip(features, targets, strict=True)
    ]
    weights = sizes if reading == "mean" else np.ones(len(sizes))
    return QuadraticClients(normalised(weights, len(factored)), *zip(*factored, strict=True))


def _factor(a: Matrix, b: Vector, divisor: int, ridge: float) -> tuple[Matrix, Vector, Vector]:
    """Axes, curvatures and minimiser of ``|a x - b|^2 / (2 divisor) + ridge |x|^2 / 2``."""
    left, singular, axes = np.linalg.svd(a, full_matrices=ridge > 0)
    cutoff = max(a.shape) * np.finfo(float).eps * singular.max(initial=0.0)
    rank = int(np.sum(singular > cutoff))
    singular, along = singular[:rank], left[:, :rank].T @ b
    if ridge == 0:
        return axes[:rank], singular**2 / divisor, along / singular
    # The ridge adds curvature to all directions, also to those outside the range of the data.
    curvatures, slopes = np.full(len(axes), ridge), np.zeros(len(axes))
    curvatures[:rank] += singular**2 / divisor
    slopes[:rank] = singular * along / divisor
    return axes, curvatures, slopes / curvatures


def quadratic_clients(
    hessians: Sequence[Matrix], slopes: Sequence[Vector], weights: Vector | None = None
) -> QuadraticClients:
    r"""Factor clients :math:`f_k(x) = x^T H_k x / 2 - h_k^T x`.

    Args:
      hessians: the H_k.
      slopes: the h_k.
      weights: the p_k up to a factor; equal by default.

    Raises:
      ValueError: if an H_k is indefinite or some f_k has no minimiser.
    """
    factored = []
    for k, (hessian, slope) in enumerate(zip(hessians, slopes, strict=True)):
        curvatures, axes = np.linalg.eigh(np.asarray(hessian, float))
        scale = np.abs(curvatures).max()
        if curvatures[0] < -1e-12 * scale:
            raise ValueError(
                f"the Hessian of client {k} has the eigenvalue {curvatures[0]:g}; pass quadratics "
                "that are convex."
            )
        curved = curvatures > len(axes) * np.finfo(float).eps * scale
        along = axes.T @ slope
        if np.abs(along[~curved]).max(initial=0.0) > 1e-10 * np.abs(along).max(initial=0.0):
            raise ValueError(
                f"the linear term of client {k} is not in the range of its Hessian, so there is no "
                "minimiser; pass quadratics that are bounded below."
            )
        factored.append((axes.T[curved], curvatures[curved], along[curved] / curvatures[curved]))
    return QuadraticClients(normalised(weights, len(factored)), *zip(*factored, strict=True))


class RoundMap(NamedTuple):
    r"""The map of one round of FedGD, :math:`x \mapsto M x + C`, in the eigenbasis of M.

    Attributes:
      fixed_point: the limit x_FGD; if I - M is singular, the limit of smallest norm.
      axes: orthonormal columns, the eigenvectors of M.
      decrements: 1 minus the eigenvalues of M, in the order of the axes.
    """

    fixed_point: Vector
    axes: Matrix
    decrements: Vector

    @property
    def matrix(self) -> Matrix:
        """The matrix M of the round map."""
        return (self.axes * (1 - self.decrements)) @ self.axes.T

    @property
    def offset(self) -> Vector:
        """The offset C of the round map."""
        return self.axes @ (self.decrements * (self.axes.T @ self.fixed_point))

    @property
    def spectral_radius(self) -> float:
        """The norm of M, the largest factor of an error in one round; FedGD diverges above 1."""
        return float(np.abs(1 - self.decrements).max())

    def after(self, start: Vector, num_rounds: int) -> Vector:
        """Return the server's point after ``num_rounds`` rounds from ``start``."""
        error = self.axes.T @ (start - self.fixed_point)
        return self.fixed_point + self.axes @ (powers(self.decrements, num_rounds).power * error)


@validated
def round_map(clients: QuadraticClients, step_size: Positive, num_steps: Count) -> RoundMap:
    r"""Return the exact round of FedGD with E full gradient steps of size s per client.

    .. math:: x_t = x_{FGD} + M^t (x_0 - x_{FGD}), \qquad \sum_k p_k S_k (H_k x_{FGD} - h_k) = 0

    It converges if ``step_size`` is below ``2 / clients.smoothness`` and the mean Hessian has full
    rank. x_FGD minimises the sum over k of p_k times :math:`|A_k x - b_k|^2` weighted by
    :math:`W_k = \sum_{e<E} (I - s A_k A_k^T)^e`, and is computed in that form, whose condition
    number is the square root of that of I - M.

    Args:
      clients: the factored clients.
      step_size: s.
      num_steps: E.

    Example:
      >>> clients = quadratic_clients([np.eye(1), 3 * np.eye(1)], [np.ones(1), 9 * np.ones(1)])
      >>> [round_map(clients, 0.5, num_steps).fixed_point.item() for num_steps in (1, 2)]
      [2.5, 2.0]
    """
    gains = [powers(step_size * c, num_steps).complement for c in clients.curvatures]
    if not all(np.isfinite(gain).all() for gain in gains):
        raise ValueError(
            f"step_size is {step_size:g}, with which {num_steps} steps overflow; pass one below "
            f"2 / smoothness = {2 / clients.smoothness:g}."
        )
    drop = _weighted_sum(clients, gains)
    decrements, axes = np.linalg.eigh(drop)
    if all((gain >= 0).all() for gain in gains):
        fixed_point = _weighted_minimiser(clients, gains)
    else:
        # Above 2 / L an even number of steps has gains of both signs, and no square roots.
        parts = zip(clients.weights, clients.axes, gains, clients.minimisers, strict=True)
        offset = sum(p * axis.T @ (gain * x) for p, axis, gain, x in parts)
        fixed_point = np.linalg.lstsq(drop, offset)[0]
    return RoundMap(fixed_point, axes, decrements)


@validated
def minimiser(clients: QuadraticClients) -> Vector:
    """Return x_LS, the minimiser of sum p_k f_k; of several, the one of smallest norm.

    It is FedGD's limit if E = 1, if all H_k are equal, or if the clients share a minimiser; else
    the two differ in general.
    """
    return _weighted_minimiser(clients, clients.curvatures)


@validated
def many_steps_limit(clients: QuadraticClients) -> Vector:
    r"""Return FedGD's limit as E grows, the mean of the minimisers if all H_k are invertible.

    In general :math:`(\sum_k p_k \Pi_k)^{-1} \sum_k p_k H_k^+ h_k`, with the projectors
    :math:`\Pi_k` onto the ranges of the H_k. It does not depend on the step size.
    """
    return _weighted_minimiser(
        clients, [np.ones_like(curvature) for curvature in clients.curvatures]
    )


@validated
def first_order_bias(clients: QuadraticClients, step_size: Positive, num_steps: Count) -> Vector:
    r"""Return the leading term of x_FGD - x_LS, up to the order of :math:`(sE)^2`.

    .. math:: \tfrac{s (E - 1)}{2} \Big(\sum_k p_k H_k\Big)^{-1} \sum_k p_k H_k \nabla f_k(x_{LS})

    With equal Hessians there is no bias, for any heterogeneity.
    """
    at = minimiser(clients)
    hessian = _weighted_sum(clients, clients.curvatures)
    mean = np.zeros_like(at)
    for p, axes, curvature, own in zip(*clients, strict=True):
        mean += p * axes.T @ (curvature**2 * (axes @ at - own))
    return step_size * (num_steps - 1) / 2 * np.linalg.lstsq(hessian, mean)[0]


def _weighted_sum(clients: QuadraticClients, gains: Sequence[Vector]) -> Matrix:
    """The sum of p_k V_k diag(gains_k) V_k^T, with the axes as columns of V_k."""
    rows = zip(clients.weights, clients.axes, gains, strict=True)
    return np.sum([p * (axes.T * gain) @ axes for p, axes, gain in rows], axis=0)


def _weighted_minimiser(clients: QuadraticClients, gains: Sequence[Vector]) -> Vector:
    """Minimise the sum of the distances to the clients' minimisers in p_k V_k diag(gains_k) V_k^T.

    Solved as a least-squares problem in the square roots of the gains, not by normal equations.
    """
    roots = [np.sqrt(p * gain) for p, gain in zip(clients.weights, gains, strict=True)]
    rows = np.concatenate([r[:, None] * axes for r, axes in zip(roots, clients.axes, strict=True)])
    right = np.concatenate([r * x for r, x in zip(roots, clients.minimisers, strict=True)])
    return np.linalg.lstsq(rows, right)[0]
