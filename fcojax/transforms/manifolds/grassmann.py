"""Subspaces, as orthonormal bases."""

import jax
import jax.numpy as jnp

from fcojax.arguments import factory
from fcojax.transforms.manifolds.manifold import Manifold, projected_normal
from fcojax.transforms.manifolds.polar import matmul, polar
from fcojax.transforms.manifolds.stiefel import geodesic, log_by_halving
from fcojax.xla import linalg


@factory
def grassmann() -> Manifold:
    r"""Return the k-dimensional subspaces of :math:`R^d`, represented by orthonormal bases.

    .. math:: P(y) = \mathrm{argmin}_{x^T x = I} |x - y|_F, \qquad P_x(v) = v - x x^T v

    Points are those of ``stiefel``; all :math:`xQ` with Q orthogonal represent the same subspace.
    Tangent vectors are horizontal, :math:`x^T u = 0`. A function of the subspace has the same
    gradient on both manifolds. ``exp``, ``retract`` and their inverses are maps of subspaces:
    ``exp(x, log(x, y))`` is the basis of the span of y that is nearest to x. ``log`` and
    ``inverse_retract`` exist if all principal angles are below pi/2; else the result is finite but
    meaningless.

    Example:
      >>> x, y = jnp.array([[1.0], [0.0]]), jnp.array([[-0.6], [0.8]])
      >>> (100 * grassmann().inverse_retract(x, y)).round().tolist()
      [[0.0], [-133.0]]

    References:
      Edelman, Arias and Smith, "The geometry of algorithms with orthogonality constraints", 1998.
    """

    def to_tangent(x, v):
        return v - matmul(x, matmul(x.T, v))

    def inverse_retract(x, y):
        return to_tangent(x, _solve_right(y, matmul(x.T, y)))

    def log(x, y):
        nearest_basis = matmul(y, polar(matmul(y.T, x)))
        return log_by_halving(x, nearest_basis, lambda x, y: to_tangent(x, y))

    return Manifold(
        project=polar,
        to_tangent=to_tangent,
        retract=lambda x, u: polar(x + u),
        random_point=projected_normal(polar),
        reach=1.0,
        inverse_retract=inverse_retract,
        exp=lambda x, u: polar(geodesic(x, to_tangent(x, u))),
        log=log,
    )


def _solve_right(left, matrix):
    """``left matrix^(-1)``, or ``left`` if the matrix is singular."""
    fixed = jax.lax.stop_gradient(matrix)

    def solve(matrix, right):
        solution = linalg.solve(matrix, right)
        return jnp.where(jnp.all(jnp.isfinite(solution)), solution, right)

    return jax.lax.custom_linear_solve(
        lambda z: matmul(matrix.T, z),
        left.T,
        solve=lambda _, right: solve(fixed.T, right),
        transpose_solve=lambda _, right: solve(fixed, right),
    ).T
