"""Decompositions that do not deadlock on a CPU, and forms for accelerators.

XLA on a CPU distributes a batch of LAPACK calls over its thread pool from one of the pool's own
threads, which then blocks. If as many batches are factorised at once as there are threads (two
leaves of a model on two cores), every thread blocks and the program never ends. So on a CPU a batch
is factorised one matrix after the other.

In a sweep the product of a client's examples and a vector becomes a product of two matrices, with a
column for each point. With few points its result is so small that it occupies few processors of a
GPU, each with a long sum; a sum for each entry occupies all, and XLA fuses its gradient with the
step that follows.

The loss of a label takes one score of each row, as in ``jnp.take_along_axis`` and optax. On a GPU
the derivative of this gather is a kernel of its own, a scatter; that of a comparison with the
labels is part of the kernels beside it, which read all scores anyway.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import primitives

from fcojax.types import Array, Result
from fcojax.xla.jaxprs import FORMS
from fcojax.xla.rules import rules, side_by_side


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


def _of_product(equation: Any) -> Callable | None:
    """Return the sum of terms that a matrix times a vector is, for a small sweep."""
    left, right = (atom.aval for atom in equation.invars)
    number, terms = side_by_side.value, max(left.size, right.size)
    if number is None or number * terms > rules().summed_terms or 1 not in (left.ndim, right.ndim):
        return None
    # A precision that the user sets, or a dtype with its own, is for products.
    dtypes = {left.dtype, right.dtype, equation.outvars[0].aval.dtype}
    full = equation.params["precision"] == (jax.lax.Precision.HIGHEST,) * 2
    (contracted, _), known = equation.params["dimension_numbers"], (jnp.float32, jnp.float64)
    if not full or len(dtypes) > 1 or left.dtype not in known or contracted == ((), ()):
        return None
    if equation.params.get("out_sharding") is not None:
        return None

    def summed(left, right):
        if left.ndim > 1:
            return _summed(left, right, *contracted[0])
        return _summed(right, left, *contracted[1])

    return summed


def _summed(matrix: Array, vector: Array, axis: int) -> Array:
    others = [other for other in range(matrix.ndim) if other != axis]
    return jnp.sum(matrix * jnp.expand_dims(vector, others), axis)


def _of_gather(equation: Any) -> Callable | None:
    """Return the form for one index for each row, or for one entry of an axis of length one."""
    x, given, result = (atom.aval for atom in (*equation.invars, *equation.outvars))
    numbers, mode = equation.params["dimension_numbers"], equation.params["mode"]
    axes, others = numbers.collapsed_slice_dims, numbers.operand_batching_dims
    batched = numbers.start_indices_batching_dims
    if len(axes) != 1 or not (rules().few_kernels and jnp.issubdtype(x.dtype, jnp.floating)):
        return None
    axis, sizes = axes[0], [x.shape[other] for other in others]
    in_order = [*others] == sorted(others) and [*batched] == sorted(batched)
    one_each = others and in_order and x.ndim == len(others) + 1 and given.size == math.prod(sizes)
    one_entry = x.shape[axis] == given.size == 1 and result.size == x.size and not others
    if not (one_each or one_entry):
        return None
    fill_value = equation.params["fill_value"]
    fill_value = jnp.nan if fill_value is None else fill_value

    def form(x: Array, indices: Array) -> Array:
        indices, last = indices.reshape(sizes), x.shape[axis] - 1
        if mode == jax.lax.GatherScatterMode.CLIP:
            indices = jnp.clip(indices, 0, last)
        places = jnp.expand_dims(indices, axis) if sizes else indices
        here = jax.lax.broadcasted_iota(indices.dtype, x.shape, axis) == places
        found = jnp.sum(jnp.where(here, x, 0), axis)
        if mode == jax.lax.GatherScatterMode.FILL_OR_DROP:
            found = jnp.where((indices >= 0) & (indices <= last), found, float(fill_value))
        return found.reshape(result.shape)

    return form


FORMS[primitives.dot_general_p] = _of_product
FORMS[primitives.gather_p] = _of_gather
