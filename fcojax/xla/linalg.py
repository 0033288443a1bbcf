"""Decompositions that do not deadlock on a CPU, and forms that a TPU can compile.

XLA on a CPU distributes a batch of LAPACK calls over its thread pool from one of the pool's own
threads, which then blocks. If as many batches are factorised at once as there are threads (two
leaves of a model on two cores), every thread blocks and the program never ends. So on a CPU a batch
is factorised one matrix after the other.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from fcojax.types import Array
from fcojax.xla.rules import rules

Result = TypeVar("Result")

_MAX_SCHULZ = 120  # steps, two for each bit of a condition number
_REFINEMENTS = 3  # refinements of a solution by an inverse
_ROUNDING = 2000.0  # largest residual, in units of the precision, even if float32 emulates it


def unbatched(factorise: Callable[[Array], Result]) -> Callable[[Array], Result]:
    """Make ``vmap`` of a function of a matrix a sequential loop on a CPU.

    Args:
      factorise: a function of one matrix; its derivatives are unchanged.
    """

    @jax.custom_batching.custom_vmap
    def single(matrix):
        return factorise(matrix)

    @single.def_vmap
    def over_a_batch(size, mapped, matrices):
        del size, mapped  # the only argument, so it is mapped
        if rules().factors_singly:
            found = jax.lax.map(single, matrices)
        else:
            found = jax.vmap(factorise)(matrices)
        return found, jax.tree.map(lambda leaf: True, found)

    @jax.custom_jvp
    def evaluated(matrix):
        return single(matrix)

    @evaluated.defjvp
    def along(primals, tangents):
        return jax.jvp(factorise, primals, tangents)

    return functools.wraps(factorise)(evaluated)


@unbatched
def thin_svd(matrix: Array) -> tuple[Array, Array, Array]:
    """Return ``U, sigma, W^T`` of the thin singular value decomposition of a matrix.

    Example:
      >>> left, values, right = thin_svd(jnp.array([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]]))
      >>> left.shape, values.tolist(), right.shape
      ((3, 2), [2.0, 1.0], (2, 2))
    """
    if _in_double(matrix):
        left, values, right = thin_svd(matrix.astype(jnp.float64))
        return left.astype(matrix.dtype), values.astype(matrix.dtype), right.astype(matrix.dtype)
    if rules().few_kernels:  # cuSOLVER reads columns, so a transpose of rows needs no copy
        right, values, left = jnp.linalg.svd(matrix.T, full_matrices=False)
        return left.T, values, right.T
    left, values, right = jnp.linalg.svd(matrix, full_matrices=False)
    return left, values, right


@unbatched
def singular_values(matrix: Array) -> Array:
    """Return the singular values of a matrix, largest first.

    Example:
      >>> singular_values(jnp.array([[0.0, 2.0], [1.0, 0.0]])).tolist()
      [2.0, 1.0]
    """
    if _in_double(matrix):
        return singular_values(matrix.astype(jnp.float64)).astype(matrix.dtype)
    return jnp.linalg.svd(matrix, compute_uv=False)


def _in_double(matrix: Array) -> bool:
    """Return whether a float32 matrix is decomposed in float64, as float32 does not compile."""
    enabled = jnp.result_type(float) == jnp.float64
    return enabled and matrix.dtype == jnp.float32 and not rules().mixed_svd


@unbatched
def symmetric_eigh(matrix: Array) -> tuple[Array, Array]:
    """Return the eigenvalues, smallest first, and eigenvectors of a symmetric matrix.

    Example:
      >>> symmetric_eigh(jnp.array([[0.0, 1.0], [1.0, 0.0]]))[0].tolist()
      [-1.0, 1.0]
    """
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


@unbatched
def cholesky(matrix: Array) -> Array:
    """Return the lower triangular c with ``matrix == c c^T``, or NaN if there is none.

    Example:
      >>> cholesky(jnp.array([[4.0, 2.0], [2.0, 2.0]])).tolist()
      [[2.0, 0.0], [1.0, 1.0]]
    """
    return jnp.linalg.cholesky(matrix)


def solve(matrix: Array, right: Array) -> Array:
    """Return the solution of a square linear system: by products in float64 on a TPU, else by LU.

    Args:
      matrix: a square matrix; by products the solution is NaN if it is singular.
      right: a vector, or a matrix whose columns are right-hand sides.

    Example:
      >>> solve(jnp.array([[0.0, 2.0], [1.0, 0.0]]), jnp.array([2.0, 3.0])).tolist()
      [3.0, 1.0]
    """
    if matrix.dtype != jnp.float64 or rules().double_lu:
        return jnp.linalg.solve(matrix, right)
    fixed = jax.lax.stop_gradient(matrix)
    return jax.lax.custom_linear_solve(
        lambda x: _product(matrix, x),
        right,
        solve=lambda _, b: _solve_by_products(fixed, b),
        transpose_solve=lambda _, b: _solve_by_products(fixed.T, b),
    )


def _solve_by_products(matrix: Array, right: Array) -> Array:
    """Solve with the inverse by Newton and Schulz, whose program is smaller than a QR's.

    A sum over a row of the error bounds its spectral norm, where its largest entry does not: the
    error of an inverse that lacks one direction of n has entries of 1 / n. The inverse alone has
    errors like the square of the condition number, so the solution is refined, and NaN unless its
    residual is as small as rounding leaves it.
    """
    scale = jnp.max(jnp.abs(matrix), initial=0.0)  # products of norms neither over- nor underflow
    matrix, right = matrix / scale, right / scale
    eye = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    start = matrix.T / (_row_norm(matrix) * _row_norm(matrix.T))

    def unfinished(state):
        _, error, before, step = state
        return (error < before) & (step < _MAX_SCHULZ)

    def advance(state):
        inverse, error, _, step = state
        inverse = inverse + _product(inverse, eye - _product(matrix, inverse))
        now = _row_norm(eye - _product(matrix, inverse))
        # Far from the inverse the norm of the error may grow.
        return inverse, now, jnp.where(now < 0.5, error, jnp.inf), step + 1

    def refine(_, found):
        return found + _product(inverse, right - _product(matrix, found))

    one = jnp.ones((), matrix.dtype)
    state = start, one, jnp.inf * one, 0
    inverse, error, *_ = jax.lax.while_loop(unfinished, advance, state)
    found = jax.lax.fori_loop(0, _REFINEMENTS, refine, _product(inverse, right))
    residual = _largest(_product(matrix, found) - right)
    size = _row_norm(matrix) * _largest(found) + _largest(right)
    solved = (error < 0.5) & (residual <= _ROUNDING * jnp.finfo(matrix.dtype).eps * size)
    return jnp.where(solved, found, jnp.nan)


def _row_norm(matrix: Array) -> Array:
    """Return the largest sum of absolute values of a row, a norm of the matrix."""
    return jnp.max(jnp.sum(jnp.abs(matrix), axis=1), initial=0.0)


def _largest(values: Array) -> Array:
    """Return the largest absolute value of a vector, or of each column."""
    return jnp.max(jnp.abs(values), axis=0, initial=0.0)


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
