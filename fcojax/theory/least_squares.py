r"""FedGD on quadratic clients, exactly: every iterate, the limit, the rate and the bias.

Client k minimises :math:`f_k(x) = x^T H_k x / 2 - h_k^T x`. With :math:`S_k = \sum_{e<E} (I - s
H_k)^e` a round of E steps of size s is the affine map :math:`x \mapsto M x + C`, where :math:`M =
\sum_k p_k (I - s H_k)^E` and :math:`C = s \sum_k p_k S_k h_k`. No matrix power is ever formed: the
clients are factored once, after which any s, E and number of rounds cost the same.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

Matrix = np.ndarray
Vector = np.ndarray


class Powers(NamedTuple):
    r"""What ``num_times`` multiplications by 1 - z amount to, entry by entry of z.

    Attributes:
      power: :math:`(1 - z)^E`.
      complement: :math:`1 - (1 - z)^E`, with full relative accuracy for small z.
      total: :math:`\sum_{e < E} (1 - z)^e`, which is E at z = 0.
    """

    power: np.ndarray
    complement: np.ndarray
    total: np.ndarray


def powers(z: np.ndarray | float, num_times: int) -> Powers:
    """The powers of 1 - z without cancellation, for z >= 0 and ``num_times`` of any size.

    Above z = 2 the powers grow, and overflow to infinity where they must.

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


def normalised(weights: Sequence[float] | Vector | None, num_clients: int) -> Vector:
    """The p_k, one per client and of sum one; equal for ``None``."""
    weights = np.ones(num_clients) if weights is None else np.asarray(weights, float)
    if weights.shape != (num_clients,):
        raise ValueError(
            f"weights has shape {weights.shape} but there are {num_clients} clients; pass one each."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise ValueError("weights must be finite, not negative, and not all zero.")
    return weights / weights.sum()


class QuadraticClients(NamedTuple):
    """Clients factored for all steps to come; client k curves along the rows of ``axes[k]`` only.

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
        """The largest eigenvalue of any H_k: every step below 2 over it converges."""
        return max(float(curvature.max(initial=0.0)) for curvature in self.curvatures)


def least_squares_clients(
    features: Sequence[Matrix],
    targets: Sequence[Vector],
    *,
    reading: Literal["sum", "mean"],
    ridge: float = 0.0,
) -> QuadraticClients:
    r"""Clients that hold m_k examples :math:`(A_k, b_k)` each, in one of two consistent readings.

    ========  ==================================================================  =========
    reading   f_k(x)                                                              p_k
    ========  ==================================================================  =========
    "sum"     :math:`|A_k x - b_k|^2 / 2 + \mathrm{ridge}\,|x|^2 / 2`             1 / K
    "mean"    :math:`|A_k x - b_k|^2 / (2 m_k) + \mathrm{ridge}\,|x|^2 / 2`       m_k / m
    ========  ==================================================================  =========

    Without a ridge both have the pooled least-squares solution as minimiser, but FedGD's limits
    differ for E > 1, because the clients' steps are of different lengths.
    """
    if reading not in ("sum", "mean"):
        raise ValueError(f'reading is {reading!r}; pass "sum" or "mean".')
    if not (math.isfinite(ridge) and ridge >= 0):
        raise ValueError(f"ridge is {ridge}; it must be finite and zero or more.")
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
    # The ridge curves every direction; the data say nothing about those beyond their rank.
    curvatures, slopes = np.full(len(axes), ridge), np.zeros(len(axes))
    curvatures[:rank] += singular**2 / divisor
    slopes[:rank] = singular * along / divisor
    return axes, curvatures, slopes / curvatures


def quadratic_clients(
    hessians: Sequence[Matrix], slopes: Sequence[Vector], weights: Vector | None = None
) -> QuadraticClients:
    r"""Clients :math:`f_k(x) = x^T H_k x / 2 - h_k^T x`, of equal weights unless told otherwise.

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
                f"the slope of client {k} leaves the range of its Hessian, so the client has no "
                "minimiser; pass quadratics that are bounded below."
            )
        factored.append((axes.T[curved], curvatures[curved], along[curved] / curvatures[curved]))
    return QuadraticClients(normalised(weights, len(factored)), *zip(*factored, strict=True))


class RoundMap(NamedTuple):
    r"""What a round of FedGD does: :math:`x \mapsto M x + C`, in the eigenbasis of M.

    Attributes:
      fixed_point: the limit x_FGD; the one of least norm if I - M is singular.
      axes: orthonormal columns, the eigenvectors of M.
      decrements: 1 minus the eigenvalues of M, in the order of the axes.
    """

    fixed_point: Vector
    axes: Matrix
    decrements: Vector

    @property
    def matrix(self) -> Matrix:
        """M."""
        return (self.axes * (1 - self.decrements)) @ self.axes.T

    @property
    def offset(self) -> Vector:
        """C."""
        return self.axes @ (self.decrements * (self.axes.T @ self.fixed_point))

    @property
    def spectral_radius(self) -> float:
        """The norm of M, the factor by which a round shrinks the worst error; above 1, diverges."""
        return float(np.abs(1 - self.decrements).max())

    def after(self, start: Vector, num_rounds: int) -> Vector:
        """The server's point after ``num_rounds`` rounds from ``start``, at the price of one."""
        error = self.axes.T @ (start - self.fixed_point)
        return self.fixed_point + self.axes @ (powers(self.decrements, num_rounds).power * error)


def round_map(clients: QuadraticClients, step_size: float, num_steps: int) -> RoundMap:
    r"""The exact round of FedGD with ``num_steps`` full gradient steps of size ``step_size``.

    .. math:: x_t = x_{FGD} + M^t (x_0 - x_{FGD}), \qquad \sum_k p_k S_k (H_k x_{FGD} - h_k) = 0

    It converges if ``step_size`` is below ``2 / clients.smoothness`` and the clients together curve
    in every direction. x_FGD minimises the sum over k of p_k times :math:`|A_k x - b_k|^2` weighted
    by :math:`W_k = \sum_{e<E} (I - s A_k A_k^T)^e`, and is solved for in that form, whose condition
    number is the square root of that of I - M.

    Example:
      >>> clients = quadratic_clients([np.eye(1), 3 * np.eye(1)], [np.ones(1), 9 * np.ones(1)])
      >>> [round_map(clients, 0.5, num_steps).fixed_point.item() for num_steps in (1, 2)]
      [2.5, 2.0]
    """
    if not (math.isfinite(step_size) and step_size > 0):
        raise ValueError(f"step_size is {step_size}; it must be finite and positive.")
    _refuse_count(num_steps)
    gains = [powers(step_size * c, num_steps).complement for c in clients.curvatures]
    if not all(np.isfinite(gain).all() for gain in gains):
        raise ValueError(
            f"{num_steps} steps of size {step_size:g} grow beyond what a float can hold; pass a "
            f"step_size below 2 / smoothness = {2 / clients.smoothness:g}."
        )
    drop = _weighted_sum(clients, gains)
    decrements, axes = np.linalg.eigh(drop)
    if all((gain >= 0).all() for gain in gains):
        fixed_point = _compromise(clients, gains)
    else:
        # Beyond 2 / L an even number of steps has gains of both signs, and no square roots.
        pulled = zip(clients.weights, clients.axes, gains, clients.minimisers, strict=True)
        offset = sum(p * axis.T @ (gain * x) for p, axis, gain, x in pulled)
        fixed_point = np.linalg.lstsq(drop, offset)[0]
    return RoundMap(fixed_point, axes, decrements)


def minimiser(clients: QuadraticClients) -> Vector:
    """The minimiser of sum p_k f_k, of least norm if there are several: x_LS, whatever FedGD does.

    It is FedGD's limit if E = 1, if all H_k are equal, or if the clients share a minimiser; else
    the two differ in general.
    """
    return _compromise(clients, clients.curvatures)


def many_steps_limit(clients: QuadraticClients) -> Vector:
    r"""FedGD's limit as E grows: the mean of the local minimisers if all H_k are invertible.

    In general :math:`(\sum_k p_k \Pi_k)^{-1} \sum_k p_k H_k^+ h_k`, with the projectors
    :math:`\Pi_k` onto the ranges of the H_k. It does not depend on the step size.
    """
    return _compromise(clients, [np.ones_like(curvature) for curvature in clients.curvatures])


def first_order_bias(clients: QuadraticClients, step_size: float, num_steps: int) -> Vector:
    r"""The leading term of x_FGD - x_LS, up to the order of :math:`(sE)^2`.

    .. math:: \tfrac{s (E - 1)}{2} \Big(\sum_k p_k H_k\Big)^{-1} \sum_k p_k H_k \nabla f_k(x_{LS})

    Heterogeneity alone causes no bias: it has to be felt through different Hessians.
    """
    at = minimiser(clients)
    hessian = _weighted_sum(clients, clients.curvatures)
    turned = np.zeros_like(at)
    for p, axes, curvature, own in zip(*clients, strict=True):
        turned += p * axes.T @ (curvature**2 * (axes @ at - own))
    return step_size * (num_steps - 1) / 2 * np.linalg.lstsq(hessian, turned)[0]


def _weighted_sum(clients: QuadraticClients, gains: Sequence[Vector]) -> Matrix:
    """The sum of p_k V_k diag(gains_k) V_k^T, with the axes as columns of V_k."""
    rows = zip(clients.weights, clients.axes, gains, strict=True)
    return np.sum([p * (axes.T * gain) @ axes for p, axes, gain in rows], axis=0)


def _compromise(clients: QuadraticClients, gains: Sequence[Vector]) -> Vector:
    """Where the pulls p_k V_k diag(gains_k) V_k^T towards the clients' minimisers balance.

    As a least-squares problem in the square roots of the gains, never as normal equations.
    """
    roots = [np.sqrt(p * gain) for p, gain in zip(clients.weights, gains, strict=True)]
    rows = np.concatenate([r[:, None] * axes for r, axes in zip(roots, clients.axes, strict=True)])
    right = np.concatenate([r * x for r, x in zip(roots, clients.minimisers, strict=True)])
    return np.linalg.lstsq(rows, right)[0]


def _refuse_count(num_steps: int) -> None:
    if isinstance(num_steps, bool) or not isinstance(num_steps, int) or num_steps < 1:
        raise ValueError(f"num_steps is {num_steps!r}; pass a whole number of at least 1.")
