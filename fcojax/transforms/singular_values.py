r"""Maps of the singular values of matrices, with exact derivatives.

References: Lewis and Sendov, Twice differentiable spectral functions, 2001, for the derivatives.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.types import Array, PyTree
from fcojax.xla.linalg import singular_values, thin_svd
from fcojax.xla.rules import rules

# A product with at most this many terms is summed in the kernel that computes its factors.
_SMALL_PRODUCT = 1 << 16
_ROUNDING = 8  # error of differences, in units of the machine epsilon


def per_matrix(name: str, function: Callable[[Array], Array], x: PyTree) -> PyTree:
    """Apply a function to every matrix of the pytree, and stack its results like the matrices."""

    def one_leaf(leaf):
        if leaf.ndim < 2:
            raise ValueError(
                f"{name} was applied to a leaf of shape {leaf.shape}; select the matrices with "
                f"on_subtree({name}(...), lambda path, leaf: leaf.ndim >= 2)."
            )
        if not leaf.size:
            return leaf
        results = jax.vmap(function)(leaf.reshape(-1, *leaf.shape[-2:]))
        return results.reshape(*leaf.shape[:-2], *results.shape[1:])

    return tree.cast_like(jax.tree.map(one_leaf, tree.floats(x)), x)


def require_matrix(name: str, array: Array, *, square: bool = False, least: int = 0) -> None:
    """Raise ``ValueError`` unless an array is a matrix that a transform accepts.

    Args:
      name: the name of the transform.
      array: the array that it was applied to.
      square: whether it has to be square.
      least: the smallest allowed number of rows and of columns.
    """
    shape = array.shape
    if len(shape) != 2 or min(shape) < least or square and shape[0] != shape[1]:
        kind = "square matrix" if square else "matrix"
        size = f" with at least {least} rows and columns" if least else ""
        raise ValueError(
            f"{name} was applied to an array of shape {shape}; pass a {kind}{size}, or select such "
            "leaves with on_subtree."
        )


def values_of(matrix: Array) -> Array:
    """Return the singular values of a matrix; NaN if it is not finite."""
    finite, safe = _finite_or_zero(matrix)
    return jnp.where(finite, singular_values(safe), jnp.nan)


def _finite_or_zero(matrix: Array) -> tuple[Array, Array]:
    """Return whether the matrix is finite, and the matrix, or zeros if it is not.

    LAPACK prints a line for each matrix with NaN, which would flood the output of a diverging run.
    """
    finite = jnp.all(jnp.isfinite(matrix))
    return finite, jnp.where(finite, matrix, 0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def apply_map(
    apply: Callable[[Array, Array], Array],
    slopes: Callable[[Array, Array, Array], Array],
    matrix: Array,
    number: Array,
) -> Array:
    """Return ``U diag(apply(sigma, number)) W^T``, for one decomposition of the matrix.

    Args:
      apply: ``(values, number) -> new values``, the same function of each, given a level that may
        depend on all values.
      slopes: ``(values, new values, number) -> slopes`` of the function for a fixed level.
      matrix: the matrix.
      number: a number or an array of numbers, of which the level depends too.
    """
    if not rules().few_kernels:
        finite, safe = _finite_or_zero(matrix)
        left, values, right = thin_svd(safe)
        new = (left * apply(values, number)[None, :]) @ right
        return jnp.where(finite, new, jnp.nan)
    # Entrywise checks fuse with the kernels before and after, and cuSOLVER, which overwrites its
    # matrix, needs no copy.
    safe, check = jnp.where(jnp.isfinite(matrix), matrix, 0), 0 * matrix
    left, values, right = thin_svd(safe)
    scaled = left * apply(values, number)[None, :]
    if matrix.size * values.size > _SMALL_PRODUCT:
        return scaled @ right + check
    return jnp.sum(scaled[:, :, None] * right[None] + check[:, None], axis=1)


@apply_map.defjvp
def _apply_map_jvp(apply, slopes_of, primals, tangents):
    matrix, number = primals
    matrix_dot, number_dot = tangents
    if matrix.shape[0] < matrix.shape[1]:  # the formula below is for tall matrices
        tall = (matrix.T, number), (matrix_dot.T, number_dot)
        return tuple(y.T for y in _apply_map_jvp(apply, slopes_of, *tall))
    left, values, right = thin_svd(matrix)
    # A zero singular value that is rounded up would get the derivative of a positive one.
    rounding = jnp.finfo(values.dtype).eps * max(matrix.shape) * jnp.max(values)
    values = jnp.where(values <= rounding, 0, values)
    image = matrix_dot @ right.T
    inner = left.T @ image
    new, new_dot = jax.jvp(apply, (values, number), (jnp.diagonal(inner), number_dot))
    slopes = slopes_of(values, new, number).astype(values.dtype)
    symmetric, skew = (inner + inner.T) / 2, (inner - inner.T) / 2
    core = difference_quotients(values, new, slopes) * symmetric
    core += _sum_quotients(values, new, slopes) * skew
    core = jnp.where(jnp.eye(values.size, dtype=bool), jnp.diag(new_dot), core)
    positive = values > 0
    ratios = jnp.where(positive, new / jnp.where(positive, values, 1), slopes)
    outside = (image - left @ inner) * ratios[None, :]
    return (left * new[None, :]) @ right, (left @ core + outside) @ right


def difference_quotients(x: Array, y: Array, slopes: Array) -> Array:
    """Return ``(y_i - y_j) / (x_i - x_j)`` for y a function of x with these slopes.

    The mean of the two slopes is returned where it explains the difference up to rounding, as on
    one linear piece, and where the x are equal. On different linear pieces both
    differences are exact.
    """
    gap, rise = x[:, None] - x[None, :], y[:, None] - y[None, :]
    mean = (slopes[:, None] + slopes[None, :]) / 2
    eps, size = jnp.finfo(x.dtype).eps, jnp.max(jnp.abs(x))
    tied = gap == 0
    explained = jnp.abs(rise - mean * gap) <= _ROUNDING * eps * size
    quotients = rise / jnp.where(tied, 1, gap)
    return jnp.where(tied | explained, mean, quotients)


def _sum_quotients(x: Array, y: Array, slopes: Array) -> Array:
    """``(y_i + y_j) / (x_i + x_j)``, and the slope if both x are 0."""
    total = x[:, None] + x[None, :]
    zero = total == 0
    return jnp.where(zero, slopes[:, None], (y[:, None] + y[None, :]) / jnp.where(zero, 1, total))
