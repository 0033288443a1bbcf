r"""Three problems in numpy: the mean loss over all rows plus a norm, with certificates.

.. math:: F(w) = \frac1n \sum_i f_i(x_i^T w) + \lambda \Omega(w)

The strength is a fraction of the smallest one at which zero is the minimiser. Sites are weighted by
their rows, so the pooled problem is the same.
"""

from typing import NamedTuple

import numpy as np

KINDS = ("lasso", "logistic", "group_lasso")
GROUP = 4  # columns in a group


class Problem(NamedTuple):
    """A problem; ``sites`` are pairs of rows and targets, ``strength`` is lambda."""

    kind: str
    sites: list
    strength: float

    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows and targets of all sites."""
        x, y = zip(*self.sites, strict=True)
        return np.concatenate(x), np.concatenate(y)

    def slope(self, w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the gradient of the mean loss on some rows."""
        return x.T @ derivative(self.kind, x @ w, y) / len(y)

    def prox(self, v: np.ndarray, step: float) -> np.ndarray:
        """Return the prox of ``step`` times the penalty."""
        cut = step * self.strength
        if self.kind != "group_lasso":
            return np.sign(v) * np.maximum(np.abs(v) - cut, 0)
        groups = v.reshape(-1, GROUP)
        sizes = np.linalg.norm(groups, axis=1, keepdims=True)
        kept = np.where(sizes > cut, 1 - cut / np.where(sizes > 0, sizes, 1), 0)
        return (groups * kept).ravel()

    def certificates(self, w: np.ndarray) -> dict[str, float]:
        """Return the objective, the duality gap and the violation of optimality.

        The dual point is minus the derivatives, scaled into the dual norm's ball; the violation is
        the distance of minus the gradient to the subdifferential, per coordinate or group.
        """
        x, y = self.pooled()
        scores = x @ w
        value = float(losses(self.kind, scores, y).mean()) + self.strength * norm(self.kind, w)
        slopes = derivative(self.kind, scores, y)
        gradient = x.T @ slopes / len(y)
        dual = slopes * min(1.0, self.strength / max(dual_norm(self.kind, gradient), 1e-300))
        far = w - self.prox(w - gradient, 1.0)
        lower = -float(conjugate(self.kind, dual, y).mean())
        return {"value": value, "gap": value - lower, "kkt": float(np.abs(far).max())}


def made(kind: str, sites: list, fraction: float) -> Problem:
    """Return the problem with a strength relative to the smallest one with the solution zero."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; pass one of {', '.join(KINDS)}.")
    zero = Problem(kind, sites, 0.0)
    x, y = zero.pooled()
    if kind == "logistic" and not np.isin(y, (-1, 1)).all():
        raise ValueError("the targets are not -1 and 1, which logistic needs; pass others.")
    return zero._replace(
        strength=fraction * dual_norm(kind, zero.slope(np.zeros(x.shape[1]), x, y))
    )


def losses(kind: str, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return one loss for each row."""
    return np.logaddexp(0, -y * scores) if kind == "logistic" else (scores - y) ** 2 / 2


def derivative(kind: str, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the derivatives of the losses with respect to the scores."""
    return -y * np.exp(-np.logaddexp(0, y * scores)) if kind == "logistic" else scores - y


def conjugate(kind: str, dual: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the conjugates of the losses."""
    if kind != "logistic":
        return dual**2 / 2 + y * dual
    shares = np.clip(-y * dual, 0, 1)
    return _entropy(shares) + _entropy(1 - shares)


def norm(kind: str, w: np.ndarray) -> float:
    """Return the norm of the penalty."""
    size = np.linalg.norm(w.reshape(-1, GROUP), axis=1) if kind == "group_lasso" else np.abs(w)
    return float(size.sum())


def dual_norm(kind: str, v: np.ndarray) -> float:
    """Return the dual of the norm."""
    size = np.linalg.norm(v.reshape(-1, GROUP), axis=1) if kind == "group_lasso" else np.abs(v)
    return float(size.max())


def rate(problem: Problem) -> float:
    """Return 1 / (2 L), with L the largest smoothness of a site."""
    curvature = 0.25 if problem.kind == "logistic" else 1.0
    largest = max(np.linalg.norm(x, 2) ** 2 / len(y) for x, y in problem.sites)
    return float(0.5 / (curvature * largest))


def _entropy(shares: np.ndarray) -> np.ndarray:
    return shares * np.log(np.where(shares > 0, shares, 1))
