"""Positive definite matrices.

Any two of them are joined by exactly one geodesic, so ``log`` is defined everywhere, and the mean
of any of them, the minimiser of their squared distances, is unique.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from fcojax.arguments import factory
from fcojax.transforms.manifolds.manifold import Manifold
from fcojax.transforms.manifolds.sphere import smooth_ratio
from fcojax.transforms.penalties.spectral import psd
from fcojax.transforms.singular_values import require_matrix
from fcojax.types import Array
from fcojax.xla.linalg import cholesky, symmetric_eigh, thin_svd

# Series of f(t) / t in t^2.
_SINH = (1, 1 / 6, 1 / 120, 1 / 5040)
_ARCTANH = (1, 1 / 3, 1 / 5, 1 / 7, 1 / 9)


@factory
def spd() -> Manifold:
    r"""Return the symmetric positive definite (d, d) matrices with the affine-invariant metric.

    .. math:: \langle u, v \rangle_x = \mathrm{tr}(x^{-1} u\, x^{-1} v), \qquad
              \exp_x(u) = c \exp(c^{-1} u c^{-T}) c^T, \quad x = c c^T

    All maps commute with the congruences :math:`x \mapsto a x a^T`, so the units of the variables
    of a covariance matrix do not matter. Singular matrices are infinitely far away. ``retract`` and
    its inverse are exp and log, and ``transport`` is parallel. ``project`` takes the symmetric part
    and raises eigenvalues to at least 16 d rounding errors of the largest. ``random_point`` is the
    exponential of a normal tangent at the identity.

    Derivatives are exact also where eigenvalues are equal, as in ``log(x, x)``; second derivatives
    are not defined there.

    Example:
      >>> one, nine = jnp.diag(jnp.array([1.0, 4.0])), jnp.diag(jnp.array([9.0, 4.0]))
      >>> mean = spd().exp(one, 0.5 * spd().log(one, nine))
      >>> mean.round(3).tolist()
      [[3.0, 0.0], [0.0, 4.0]]

    References:
      Pennec, Fillard and Ayache, "A Riemannian framework for tensor computing", 2006.
      Bhatia, "Positive definite matrices", 2007, chapter 6.
    """

    def project(y):
        require_matrix("spd", y, square=True, least=1)
        rows = jnp.max(jnp.sum(jnp.abs(y), axis=1))  # at least the largest eigenvalue
        least = 16 * y.shape[0] * jnp.finfo(y.dtype).eps * jnp.where(rows > 0, rows, 1)
        floor = jax.lax.stop_gradient(least) * jnp.eye(y.shape[0], dtype=y.dtype)
        return psd().prox(y - floor, 1.0, 1.0) + floor

    def exp(x, tangent):
        root = cholesky(x)
        end = root @ _of_eigenvalues(_EXP, _whitened(root, tangent) / 2)  # a root of the result
        return _symmetric(end @ end.T)

    def log(x, y):
        root = cholesky(x)
        return _symmetric(root @ _of_square(_LOG, _whitened_root(root, y)) @ root.T)

    def metric(x, v):
        root = cholesky(x)
        return _whitened(root, _whitened(root, v), transposed=True)

    def transport(x, y, tangent):
        root = cholesky(x)
        move = root @ _of_square(_SQRT, _whitened_root(root, y))
        return _symmetric(move @ _whitened(root, tangent) @ move.T)

    def random_point(like, key):
        require_matrix("spd", like, square=True, least=1)
        normal = jax.random.normal(key, like.shape, like.dtype) / jnp.sqrt(like.shape[0])
        return exp(jnp.eye(*like.shape, dtype=normal.dtype), _symmetric(normal))

    return Manifold(
        project=project,
        to_tangent=lambda x, v: _symmetric(v),
        retract=exp,
        random_point=random_point,
        reach=float("inf"),
        inverse_retract=log,
        exp=exp,
        log=log,
        riesz=lambda x, gradient: x @ gradient @ x,
        metric=metric,
        transport=transport,
    )


def _exp_quotient(a, b):
    half = (a - b) / 2
    return jnp.exp((a + b) / 2) * smooth_ratio(jnp.sinh, half * half, *_SINH)


def _log_quotient(a, b):
    # arctanh(t) = log(a / b) / 2; of t itself it would be infinite where b is lost in a + b.
    t = (a - b) / (a + b)
    half = smooth_ratio(lambda _: jnp.abs(jnp.log(a / b)) / 2, t * t, *_ARCTANH)
    return 2 * half / (a + b)


# Functions f, and the quotients (f(a) - f(b)) / (a - b).
_EXP = jnp.exp, _exp_quotient
_LOG = jnp.log, _log_quotient
_SQRT = jnp.sqrt, lambda a, b: 1 / (jnp.sqrt(a) + jnp.sqrt(b))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _of_eigenvalues(spectral: tuple[Callable, Callable], matrix: Array) -> Array:
    """Apply a function to the eigenvalues of a symmetric matrix."""
    values, basis = symmetric_eigh(matrix)
    return (basis * spectral[0](values)[None, :]) @ basis.T


@_of_eigenvalues.defjvp
def _of_eigenvalues_jvp(spectral, primals, tangents):
    values, basis = symmetric_eigh(primals[0])
    return _with_derivative(spectral, values, basis, basis.T @ tangents[0] @ basis)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _of_square(spectral: tuple[Callable, Callable], factor: Array) -> Array:
    """Apply a function to the eigenvalues of ``factor @ factor.T``.

    They are squares of singular values, so positive, and known to twice as many digits: in float32
    matrices of condition 1e5 have distances to 3e-4. The product has negative eigenvalues there.
    """
    basis, values, _ = thin_svd(factor)
    return (basis * spectral[0](values**2)[None, :]) @ basis.T


@_of_square.defjvp
def _of_square_jvp(spectral, primals, tangents):
    basis, values, right = thin_svd(primals[0])
    half = (basis.T @ tangents[0] @ right.T) * values[None, :]
    return _with_derivative(spectral, values**2, basis, half + half.T)


def _with_derivative(spectral, values, basis, change):
    """Return the function of a matrix, and its derivative at a change in the matrix's basis."""
    core = spectral[1](values[:, None], values[None, :]) * change
    return (basis * spectral[0](values)[None, :]) @ basis.T, basis @ core @ basis.T


def _whitened(root: Array, v: Array, transposed: bool = False) -> Array:
    """``c^(-1) v c^(-T)`` for a lower triangular c, or for its transpose."""
    solve = partial(
        jax.scipy.linalg.solve_triangular, root, lower=True, trans="T" if transposed else "N"
    )
    return solve(solve(v).T).T


def _whitened_root(root: Array, y: Array) -> Array:
    """Return a factor of ``c^(-1) y c^(-T)``."""
    return jax.scipy.linalg.solve_triangular(root, cholesky(y), lower=True)


def _symmetric(matrix: Array) -> Array:
    return (matrix + matrix.T) / 2
