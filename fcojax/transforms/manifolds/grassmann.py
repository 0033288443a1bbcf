"""Subspaces, as orthonormal bases or as projectors, and matrices of fixed rank."""

from functools import partial

import jax
import jax.numpy as jnp

from fcojax.arguments import factory
from fcojax.transforms.manifolds.manifold import Manifold, projected_normal
from fcojax.transforms.manifolds.polar import matmul, polar, polar_differential
from fcojax.transforms.manifolds.stiefel import geodesic, log_by_halving
from fcojax.transforms.singular_values import require_matrix
from fcojax.types import Array, Count
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


@factory
def fixed_rank(rank: Count) -> Manifold:
    r"""Return the (m, n) matrices of rank ``rank`` (experimental), neither compact nor closed.

    .. math:: P(y) = \mathrm{argmin}_{\mathrm{rank}\, x = r} |x - y|_F, \qquad
              P_x(v) = U U^T v + v V V^T - U U^T v V V^T, \quad x = U S V^T

    P truncates the singular value decomposition (as y times a projector, which is differentiable
    where singular values repeat). A y of lower rank is returned unchanged, though it is in the
    closure only; if singular values r and r + 1 are equal, one of the nearest points is returned.
    The reach at x is :math:`\sigma_r(x) / \sqrt 2`, which has no positive lower bound, so ``reach``
    is 0. ``inverse_retract``, ``exp`` and ``log`` are ``None``.

    Args:
      rank: r.

    Example:
      >>> fixed_rank(1).project(jnp.diag(jnp.array([3.0, 2.0]))).tolist()
      [[3.0, 0.0], [0.0, 0.0]]
    """

    def row_space(x):
        require_matrix("fixed_rank", x, least=rank)
        largest = jax.lax.stop_gradient(jnp.max(jnp.abs(x)))
        x = x / jnp.where(largest == 0, 1, largest)  # so that squares do not overflow
        return top_eigenspace(matmul(x.T, x), rank)[0]

    def project(y):
        if y.ndim == 2 and y.shape[0] < y.shape[1]:
            return project(y.T).T
        return matmul(y, row_space(y))

    def to_tangent(x, v):
        along_rows = matmul(v, row_space(x))
        return along_rows + matmul(row_space(x.T), v - along_rows)

    def random_point(like, key):
        left, right = (
            jax.random.normal(k, (size, rank), like.dtype)
            for k, size in zip(jax.random.split(key), like.shape, strict=True)
        )
        return project(matmul(left, right.T))

    return Manifold(project, to_tangent, lambda x, u: project(x + u), random_point, 0.0)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def top_eigenspace(symmetric: Array, rank: int) -> tuple[Array, Array]:
    """Return the projector p on the leading eigenvectors, and a number c in the eigenvalue gap.

    ``2 p - I`` is the polar factor of ``symmetric - c I``, which gives a derivative without
    eigenvectors that is correct for equal eigenvalues on one side of the gap. The derivative of c
    is returned as 0, as p does not depend on it.
    """
    values, vectors = linalg.symmetric_eigh(symmetric)
    num_others = symmetric.shape[0] - rank
    leading = vectors[:, num_others:]
    split = values[-1] if num_others == 0 else values[num_others]
    split = 0.5 * (split + (values[num_others - 1] if num_others else split))
    return matmul(leading, leading.T), split


@top_eigenspace.defjvp
def _top_eigenspace_jvp(rank, primals, tangents):
    (symmetric,), (direction,) = primals, tangents
    projector, split = top_eigenspace(symmetric, rank)
    eye = jnp.eye(symmetric.shape[0], dtype=symmetric.dtype)
    direction = 0.5 * (direction + direction.T)
    change = polar_differential(2 * projector - eye, symmetric - split * eye, direction)
    if rank == symmetric.shape[0]:
        change = jnp.zeros_like(change)
    return (projector, split), (0.5 * change, jnp.zeros_like(split))


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


def _skew_part(x, y):
    del x  # the identity
    return 0.5 * (y - y.T)
