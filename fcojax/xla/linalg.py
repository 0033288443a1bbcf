"""Decompositions that do not deadlock on a CPU, and forms that a TPU can compile.

XLA on a CPU distributes a batch of LAPACK calls over its thread pool from one of the pool's own
threads, which then blocks. If as many batches are factorised at once as there are threads (two
leaves of a model on two cores), every thread blocks and the program never ends. So on a CPU a batch
is factorised one matrix after the other.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax.types import Array, Result
from fcojax.xla.rules import rules


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
    """Return the solution of a square linear system: by QR in float64 on a TPU, else by LU.

    Args:
      matrix: a square matrix; by QR the solution is NaN if it is singular.
      right: a vector, or a matrix whose columns are right-hand sides.

    Example:
      >>> solve(jnp.array([[0.0, 2.0], [1.0, 0.0]]), jnp.array([2.0, 3.0])).tolist()
      [3.0, 1.0]
    """
    if matrix.dtype != jnp.float64 or rules().double_lu:
        return jnp.linalg.solve(matrix, right)
    q, r = jnp.linalg.qr(matrix)
    pivots = jnp.abs(jnp.diagonal(r))
    least = len(matrix) * jnp.finfo(matrix.dtype).eps * jnp.max(pivots, initial=0.0)
    solution = jax.scipy.linalg.solve_triangular(r, q.T @ right)
    return jnp.where(jnp.all(pivots > least), solution, jnp.nan)
