"""Matrices with orthonormal columns: Stiefel manifolds, the orthogonal and rotation groups."""

import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.manifolds.manifold import Manifold, projected_normal
from fcojax.transforms.manifolds.polar import Method, matmul, polar, special_polar
from fcojax.transforms.singular_values import require_matrix
from fcojax.types import Array, Matrix
from fcojax.xla import linalg

# The linear system of the inverse polar retraction has k^2 rows: 1024 for 32 columns.
_MAX_KRONECKER = 32

# An angle of at most pi is halved four times. Then twelve terms of the arcsine series suffice for
# float64: (pi / 16)^2 = 0.039 and 0.039^12 = 1e-17. Each halving costs a factor of 2 in accuracy.
_NUM_HALVINGS = 4
_NUM_TERMS = 12


@factory
def stiefel(
    *,
    retraction: Literal["polar", "qr"] = "polar",
    inverse: Literal["exact", "projection"] = "exact",
    method: Method | None = None,
) -> Manifold:
    r"""Return the Stiefel manifold of (d, k) matrices with orthonormal columns, d >= k.

    .. math:: P(y) = \mathrm{argmin}_{x^T x = I} |x - y|_F, \qquad
              P_x(v) = v - x\, \mathrm{sym}(x^T v)

    P is ``polar``, also for a y without full rank. ``exp`` is that of the Euclidean metric; its
    inverse has no closed form, so ``log`` is ``None``.

    Args:
      retraction: ``"polar"``, ``P(x + u)``, which differs from exp by :math:`O(|u|^3)`; or
        ``"qr"``, the Q factor of x + u with positive diagonal of R, which differs by
        :math:`O(|u|^2)`.
      inverse: ``"exact"``, the inverse of the retraction for y near x: for polar by a linear system
        with k^2 unknowns, k up to 32; for QR by k nested triangular systems. If the system is
        singular it is ``P_x(y - x)``, which ``"projection"`` returns always: cheap, and exact to
        second order in ``|y - x|``.
      method: the method of ``polar``.

    Example:
      >>> y = jnp.array([[2.0, 0.0], [0.0, 3.0], [0.0, 4.0]])
      >>> (100 * stiefel().project(y)).round().tolist()
      [[100.0, 0.0], [0.0, 60.0], [0.0, 80.0]]

    References:
      Absil, Mahony and Sepulchre, "Optimization Algorithms on Matrix Manifolds", 2008, section 4.1.
      Edelman, Arias and Smith, "The geometry of algorithms with orthogonality constraints", 1998.
      Kaneko, Fiori and Tanaka, "Empirical arithmetic averaging over the compact Stiefel manifold",
      2013 (inverse retractions).
    """
    retractions = {"polar": lambda x, u: polar(x + u, method), "qr": _retract_qr}
    exact = {"polar": _inverse_polar, "qr": _inverse_qr}

    def project(y):
        return polar(y, method)

    return Manifold(
        project=project,
        to_tangent=_to_tangent,
        retract=retractions[retraction],
        random_point=projected_normal(project),
        reach=1.0,
        inverse_retract=exact[retraction] if inverse == "exact" else _inverse_projection,
        exp=lambda x, u: polar(geodesic(x, u), method),
    )


@factory
def generalised_stiefel(metric: Matrix) -> Manifold:
    r"""Return the matrices with :math:`x^T B x = I`, in the inner product of a positive definite B.

    .. math:: P(y) = \mathrm{argmin}_{x^T B x = I} |L^T (x - y)|_F = y (y^T B y)^{-1/2}, \qquad
              P_x(v) = v - x\, \mathrm{sym}(x^T B v), \qquad B = L L^T

    The nearest point in the Euclidean norm has no closed form, so this is the Stiefel manifold of
    :math:`L^T x` in the coordinates x. The tangent projection is self-adjoint in the inner product
    of B, and ``riesz`` is :math:`B^{-1}`. ``reach`` is a bound for ``|L^T (y - P(y))|``.

    Args:
      metric: B, a symmetric positive definite (d, d) matrix.

    Example:
      >>> generalised_stiefel(jnp.diag(jnp.array([4.0, 1.0]))).project(jnp.array([[3.0], [0.0]]))
      Array([[0.5], [0. ]], ...)
    """
    if not isinstance(metric, Tracer):
        values = np.asarray(metric, np.float64)
        square = values.shape == values.T.shape and values.size
        if not square or not np.allclose(values, values.T) or not np.linalg.eigvalsh(values)[0] > 0:
            raise ValueError(
                "the metric is not symmetric positive definite; pass (B + B.T) / 2, or add a "
                "multiple of the identity."
            )
    lower = jnp.linalg.cholesky(jnp.asarray(metric))

    def to_frame(x):
        x = tree.floats(x)
        return matmul(lower.T.astype(x.dtype), x)

    def solve(z, trans):
        return jax.scipy.linalg.solve_triangular(lower.astype(z.dtype), z, trans=trans, lower=True)

    def in_frame(function):
        return lambda *points: tree.cast_like(
            solve(function(*map(to_frame, points)), "T"), points[0]
        )

    frame = stiefel()
    return Manifold(
        project=in_frame(frame.project),
        to_tangent=in_frame(frame.to_tangent),
        retract=in_frame(frame.retract),
        random_point=lambda like, key: solve(frame.random_point(like, key), "T"),
        reach=1.0,
        inverse_retract=in_frame(frame.inverse_retract),
        exp=in_frame(frame.exp),
        riesz=lambda x, gradient: solve(solve(tree.floats(gradient), "N"), "T"),
        metric=lambda x, v: matmul(lower.astype(to_frame(v).dtype), to_frame(v)),
    )


@factory
def orthogonal() -> Manifold:
    r"""Return the orthogonal group O(d) of (d, d) matrices, the square Stiefel manifold.

    .. math:: P_x(v) = (v - x v^T x) / 2, \qquad \exp_x(x A) = x \exp(A), \qquad
              \log_x(y) = x \log(x^T y)

    The group has two components, of determinants 1 and -1. ``log`` and ``inverse_retract`` between
    points of different components are finite but meaningless, and so is ``log`` if :math:`x^T y`
    rotates a plane by pi, where it is not unique.

    Example:
      >>> orthogonal().project(jnp.diag(jnp.array([2.0, -3.0]))).round().tolist()
      [[1.0, 0.0], [0.0, -1.0]]
    """

    def project(y):
        require_matrix("orthogonal", y, square=True)
        return polar(y)

    def exp(x, tangent):
        return polar(matmul(x, jax.scipy.linalg.expm(_skew(matmul(x.T, tangent)))))

    def log(x, y):
        return log_by_halving(x, y, lambda x, y: matmul(x, _skew(matmul(x.T, y))))

    return stiefel()._replace(
        project=project,
        to_tangent=lambda x, v: 0.5 * (v - matmul(x, matmul(v.T, x))),
        random_point=projected_normal(project),
        exp=exp,
        log=log,
    )


@factory
def rotation() -> Manifold:
    r"""Return the rotation group SO(d) of orthogonal matrices with determinant 1.

    .. math:: P(y) = U\, \mathrm{diag}(1, \ldots, 1, \det(U V^T))\, V^T
              \quad\text{for } y = U S V^T

    The other maps are those of ``orthogonal``.

    Example:
      >>> rotation().project(jnp.diag(jnp.array([2.0, -1.0]))).round().tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    return orthogonal()._replace(
        project=special_polar, random_point=projected_normal(special_polar)
    )


def geodesic(x: Array, tangent: Array) -> Array:
    r"""Return the end of the Stiefel geodesic from x, in the Euclidean metric.

    .. math:: [x \; u] \exp\begin{pmatrix} A & -S \\ I & A \end{pmatrix}
              \begin{pmatrix} I \\ 0 \end{pmatrix} \exp(-A), \qquad A = x^T u, \; S = u^T u

    Here u is the tangent. With A = 0 it is the geodesic of the Grassmann manifold.
    """
    k = x.shape[1]
    skew = _skew(matmul(x.T, tangent))
    eye = jnp.eye(k, dtype=x.dtype)
    block = jnp.block([[skew, -matmul(tangent.T, tangent)], [eye, skew]])
    column = matmul(jax.scipy.linalg.expm(block)[:, :k], jax.scipy.linalg.expm(-skew))
    return matmul(x, column[:k]) + matmul(tangent, column[k:])


def log_by_halving(x: Array, y: Array, chord: Callable[[Array, Array], Array]) -> Array:
    r"""Return the logarithm on a manifold in which ``polar(x + y)`` is the midpoint of x and y.

    If all angles t between x and y are small, ``chord(x, y)`` is a tangent N with singular values
    sin(t), and the logarithm is :math:`N f(N^T N)` with :math:`f(s^2) = \arcsin(s) / s`. Repeated
    midpoints make the angles small. Unlike a formula with singular vectors, this is differentiable
    where angles are equal, also at x = y.
    """
    y = jax.lax.fori_loop(0, _NUM_HALVINGS, lambda _, y: polar(x + y), y)
    across = chord(x, y)
    square = matmul(across.T, across)
    eye = jnp.eye(square.shape[0], dtype=square.dtype)
    ratio = jnp.zeros_like(square)
    for j in reversed(range(_NUM_TERMS)):
        ratio = matmul(square, ratio) + math.comb(2 * j, j) / (4**j * (2 * j + 1)) * eye
    return 2**_NUM_HALVINGS * matmul(across, ratio)


def _skew(matrix):
    return 0.5 * (matrix - matrix.T)


def _to_tangent(x, v):
    inner = matmul(x.T, v)
    return v - 0.5 * matmul(x, inner + inner.T)


def _retract_qr(x, tangent):
    q, r = jnp.linalg.qr(x + tangent)
    return q * jnp.where(jnp.diagonal(r) < 0, -1, 1).astype(q.dtype)[None, :]


def _inverse_projection(x, y):
    return _to_tangent(x, y - x)


def _tangent_of(x, y, factor):
    """The tangent ``y factor - x``, or ``P_x(y - x)`` if there is no factor."""
    exists = jnp.all(jnp.isfinite(factor)) & jnp.any(factor != 0)
    return _to_tangent(x, jnp.where(exists, matmul(y, jnp.where(exists, factor, 0)), y) - x)


def _inverse_polar(x, y):
    """``u = y W - x`` with W symmetric and ``M W + W M^T = 2 I`` for ``M = x^T y``."""
    k = x.shape[1]
    if k > _MAX_KRONECKER:
        raise ValueError(
            f"the matrix has {k} columns, but the exact inverse of the polar retraction takes at "
            f"most "
            f"{_MAX_KRONECKER}; use stiefel(inverse='projection')."
        )
    inner = matmul(x.T, y)
    fixed = jax.lax.stop_gradient(inner)
    eye = jnp.eye(k, dtype=x.dtype)

    def solve(matrix, right):
        system = jnp.kron(matrix, eye) + jnp.kron(eye, matrix)
        solution = linalg.solve(system, right.reshape(-1)).reshape(k, k)
        return jnp.where(jnp.all(jnp.isfinite(solution)), solution, 0)  # zero if singular

    factor = jax.lax.custom_linear_solve(
        lambda w: matmul(inner, w) + matmul(w, inner.T),
        2 * eye,
        solve=lambda _, right: solve(fixed, right),
        transpose_solve=lambda _, right: solve(fixed.T, right),
    )
    return _tangent_of(x, y, factor)


def _inverse_qr(x, y):
    """``u = y R - x`` with R upper triangular and ``M R + (M R)^T = 2 I``, column by column.

    Column i of R solves a system with the leading block of M, padded with the identity.
    """
    inner = matmul(x.T, y)
    index = jnp.arange(x.shape[1])
    eye = jnp.eye(x.shape[1], dtype=x.dtype)

    def column(triangle, i):
        leading = (index[:, None] <= i) & (index[None, :] <= i)
        right = jnp.where(index < i, -matmul(inner[i][None, :], triangle)[0], eye[i])
        solution = linalg.solve(jnp.where(leading, inner, eye), right)
        return triangle.at[:, i].set(solution), None

    triangle, _ = jax.lax.scan(column, jnp.zeros_like(inner), index)
    return _tangent_of(x, y, triangle)
