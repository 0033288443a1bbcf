"""Subspaces: as orthonormal bases, up to rotation, or as projectors. And matrices of fixed rank."""

from functools import partial

import jax
import jax.numpy as jnp

from fcojax.factorisations import symmetric_eigh
from fcojax.memo import memoised
from fcojax.transforms.manifolds.manifold import Manifold
from fcojax.transforms.manifolds.polar import matmul, polar, polar_differential
from fcojax.transforms.manifolds.stiefel import geodesic, log_by_halving
from fcojax.types import Array


@memoised
def grassmann() -> Manifold:
    r"""The k-dimensional subspaces of :math:`R^d`, each written as an orthonormal basis of it.

    .. math:: P(y) = \mathrm{argmin}_{x^T x = I} |x - y|_F, \qquad P_x(v) = v - x x^T v

    Points are those of ``stiefel``, and a subspace is all :math:`xQ`, Q orthogonal; tangents are
    horizontal, :math:`x^T u = 0`. For a function of the subspace the two manifolds give the same
    gradient. ``exp``, ``retract`` and their inverses hold for subspaces: ``exp(x, log(x, y))``
    spans what y spans and is the basis of it nearest to x. ``log`` and ``inverse_retract`` exist
    while no principal angle is a right one; a right angle gives a finite answer of no meaning.

    Example:
      >>> x, y = jnp.array([[1.0], [0.0]]), jnp.array([[-0.6], [0.8]])
      >>> (100 * grassmann().inverse_retract(x, y)).round().tolist()
      [[0.0], [-133.0]]

    References:
      Edelman, Arias and Smith, The geometry of algorithms with orthogonality constraints, 1998.
    """

    def random_point(like, key):
        return polar(jax.random.normal(key, like.shape, like.dtype))

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
        random_point=random_point,
        reach=1.0,
        inverse_retract=inverse_retract,
        exp=lambda x, u: polar(geodesic(x, to_tangent(x, u))),
        log=log,
    )


@memoised
def grassmann_projector(rank: int) -> Manifold:
    r"""The subspaces of dimension ``rank`` in :math:`R^d`, written as (d, d) orthogonal projectors.

    .. math:: P(y) = Q Q^T, \qquad P_p(v) = p s (I - p) + (I - p) s p, \quad s = \mathrm{sym}(v)

    where the columns of Q are leading eigenvectors of sym(y). Where the eigenvalues number
    ``rank`` and ``rank + 1`` coincide there are several nearest points, and one is returned.
    Norms are :math:`\sqrt 2` times those of ``grassmann``; for small d.

    ``inverse_retract`` exists while all principal angles are below pi/4, ``log`` while they are
    below pi/2; beyond, both are finite and mean nothing.

    Example:
      >>> grassmann_projector(1).project(jnp.diag(jnp.array([0.1, 3.0]))).tolist()
      [[0.0, 0.0], [0.0, 1.0]]

    References:
      Bendokat, Zimmermann and Absil, A Grassmann manifold handbook, 2024.
    """
    _check_rank(rank)

    def project(y):
        _check_square(y, rank)
        return top_eigenspace(0.5 * (y + y.T), rank)[0]

    def to_tangent(p, v):
        ps = matmul(p, 0.5 * (v + v.T))
        crossing = ps - matmul(ps, p)
        return crossing + crossing.T

    def inverse_retract(p, q):
        # With angles t, the crossing block of q is sin(2 t) / 2 and ``inner`` is cos(2 t) on p.
        inner = matmul(matmul(p, 2 * q), p) + jnp.eye(p.shape[0], dtype=p.dtype) - 2 * p
        crossing = matmul(q, p) - matmul(p, matmul(q, p))
        slope = _solve_right(crossing, inner)
        return to_tangent(p, slope + slope.T)

    def exp(p, tangent):
        turn = jax.scipy.linalg.expm(matmul(tangent, p) - matmul(p, tangent))
        return project(matmul(matmul(turn, p), turn.T))

    def log(p, q):
        # (2q - I)(2p - I) is the rotation by twice the angles between the subspaces.
        eye = jnp.eye(p.shape[0], dtype=p.dtype)
        turn = 0.5 * log_by_halving(eye, matmul(2 * q - eye, 2 * p - eye), _skew_part)
        return to_tangent(p, matmul(turn, p) - matmul(p, turn))

    def random_point(like, key):
        basis = polar(jax.random.normal(key, (like.shape[0], rank), like.dtype))
        return matmul(basis, basis.T)

    return Manifold(
        project=project,
        to_tangent=to_tangent,
        retract=lambda p, u: project(p + u),
        random_point=random_point,
        reach=0.5**0.5,
        inverse_retract=inverse_retract,
        exp=exp,
        log=log,
    )


@memoised
def fixed_rank(rank: int) -> Manifold:
    r"""Experimental: the (m, n) matrices of rank ``rank``, neither compact nor closed.

    .. math:: P(y) = \mathrm{argmin}_{\mathrm{rank}\, x = r} |x - y|_F, \qquad
              P_x(v) = U U^T v + v V V^T - U U^T v V V^T, \quad x = U S V^T

    P truncates the singular value decomposition (written as y times a projector, which can be
    differentiated where singular values repeat). A y of lower rank is its own answer, though it
    lies in the closure only; where singular values number r and r + 1 coincide, one nearest point
    is returned. The tube around x has radius :math:`\sigma_r(x) / \sqrt 2`, so there is no common
    ``reach`` and it is given as 0. There is no inverse retraction, exp or log.

    Example:
      >>> fixed_rank(1).project(jnp.diag(jnp.array([3.0, 2.0]))).tolist()
      [[3.0, 0.0], [0.0, 0.0]]
    """
    _check_rank(rank)

    def row_space(x):
        if x.ndim != 2 or min(x.shape) < rank:
            raise ValueError(
                f"the rank is {rank} but the array has shape {x.shape}; "
                f"pass a matrix with both sides at least {rank}."
            )
        largest = jax.lax.stop_gradient(jnp.max(jnp.abs(x)))
        x = x / jnp.where(largest == 0, 1, largest)  # squares must not overflow
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
    """The projector on the leading eigenvectors, and a number between them and the others.

    With c in the gap, ``2 p - I`` is the polar factor of ``symmetric - c I``: hence a derivative
    without eigenvectors, which equal eigenvalues on one side of the gap leave alone. That of c is
    declared 0, as p does not depend on it.
    """
    values, vectors = symmetric_eigh(symmetric)
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
    """``left matrix^(-1)``, or ``left`` where the matrix is singular."""
    fixed = jax.lax.stop_gradient(matrix)

    def solve(matrix, right):
        solution = jnp.linalg.solve(matrix, right)
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


def _check_rank(rank):
    if not isinstance(rank, int) or rank < 1:
        raise ValueError(f"the rank is {rank!r}; pass a whole number, 1 or more.")


def _check_square(y, rank):
    if y.ndim != 2 or y.shape[0] != y.shape[1] or y.shape[0] < rank:
        raise ValueError(
            f"a projector of rank {rank} is a square matrix with at least {rank} rows, but the "
            f"array has shape {y.shape}; pass (d, d)."
        )
