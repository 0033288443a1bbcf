r"""Penalties and constraints on the singular values or eigenvalues of matrices.

A leaf of shape (..., m, n) is a stack of matrices. A norm is summed over all matrices of the
pytree, and a constraint applies to each of them, with the same ``scale``.
"""

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.indicators import indicator, largest
from fcojax.transforms.penalties.l1 import soft_threshold
from fcojax.transforms.penalty import Penalty, strength, times_scale, weight
from fcojax.transforms.singular_values import (
    apply_map,
    difference_quotients,
    per_matrix,
    require_matrix,
    values_of,
)
from fcojax.transforms.subdifferentials import distance_to_nuclear
from fcojax.transforms.thresholds import project_l1_ball
from fcojax.types import Array
from fcojax.xla.linalg import symmetric_eigh


@factory
def nuclear() -> Penalty:
    r"""Return the nuclear norm, :math:`\psi(X) = \lambda \sum_i \sigma_i(X)`.

    .. math:: \mathrm{prox}(V) = \mathrm{argmin}_X\; t \lambda \|X\|_* + \tfrac12 \|X - V\|_F^2
                               = U \,\mathrm{diag}(\max(\sigma_i - t\lambda, 0))\, W^T

    for the thin singular value decomposition V = U diag(sigma) W^T. Singular values up to t lambda
    become zero. ``scale_max`` is the largest singular value of the gradient at zero. The derivative
    is exact and finite, also where singular values are equal or zero; a singular value equal to the
    threshold is treated as if it were below. Leaves that are not matrices raise an error.

    Example:
      >>> nuclear().prox(jnp.array([[3.0, 0.0], [0.0, 0.5]]), step=1.0, scale=1.0)
      Array([[2., 0.], [0., 0.]], ...)

    References:
      Cai, Candes and Shen, "A singular value thresholding algorithm for matrix completion", 2010,
      theorem 2.1.
    """

    def value(x, scale):
        each = per_matrix("nuclear", lambda matrix: jnp.sum(values_of(matrix)), x)
        return times_scale(scale, tree.total(jax.tree.map(jnp.sum, each)))

    def prox(v, step, scale):
        def one_matrix(matrix):
            threshold = weight(step, scale, matrix)
            return apply_map(soft_threshold, _shrink_slopes, matrix, threshold)

        return per_matrix("nuclear", one_matrix, v)

    def scale_max(gradient):
        return largest(per_matrix("nuclear", lambda matrix: values_of(matrix)[0], gradient))

    def subdiff_distance(x, v, scale):
        def one_leaf(leaf, slope):
            if not leaf.size:
                return leaf
            pairs = jnp.stack([leaf, slope], axis=-3)
            shape = (-1, *pairs.shape[-3:])
            return jax.vmap(
                lambda pair: distance_to_nuclear(pair[0], pair[1], strength(scale, leaf))
            )(pairs.reshape(shape))

        per_matrix("nuclear", lambda matrix: matrix, x)
        return tree.euclidean_norm(jax.tree.map(one_leaf, tree.floats(x), tree.floats(v)))

    return Penalty(value, prox, scale_max, subdiff_distance=subdiff_distance)


@factory
def nuclear_ball() -> Penalty:
    r"""Return the ball :math:`\{\|X\|_* \le r\}` of the nuclear norm; ``scale`` is r.

    .. math:: \mathrm{prox}(V) = \mathrm{argmin}_{\|X\|_* \le r} \tfrac12 \|X - V\|_F^2
                               = U \,\mathrm{diag}(\max(\sigma_i - \theta, 0))\, W^T

    with theta >= 0 such that the singular values are projected onto the l1 ball of radius r. The
    step has no effect.

    Example:
      >>> nuclear_ball().prox(jnp.array([[3.0, 0.0], [0.0, 2.0]]), step=1.0, scale=3.0)
      Array([[2., 0.], [0., 1.]], ...)
    """

    def value(x, scale):
        def excess(matrix):
            return jnp.sum(values_of(matrix)) - jnp.asarray(scale, matrix.dtype)

        return indicator(largest(per_matrix("nuclear_ball", excess, x)), scale)

    def prox(v, step, scale):

        def one_matrix(matrix):
            return apply_map(project_l1_ball, _ball_slopes, matrix, strength(scale, matrix))

        return per_matrix("nuclear_ball", one_matrix, v)

    return Penalty(value, prox)


@factory
def psd() -> Penalty:
    r"""Return the cone of symmetric positive semidefinite matrices.

    .. math:: \mathrm{prox}(V) = \mathrm{argmin}_{X = X^T,\, X \succeq 0} \tfrac12 \|X - V\|_F^2
                               = Q \,\mathrm{diag}(\max(\mu_i, 0))\, Q^T

    where :math:`Q\,\mathrm{diag}(\mu)\,Q^T = (V + V^T)/2` is the symmetric part of V. Step and
    scale have no effect. Matrices that are not square raise an error.

    Example:
      >>> psd().prox(jnp.array([[2.0, 0.0], [0.0, -1.0]]), step=1.0, scale=1.0)
      Array([[2., 0.], [0., 0.]], ...)

    References:
      Higham, "Computing a nearest symmetric positive semidefinite matrix", 1988, theorem 2.1.
    """

    def value(x, scale):

        def one_matrix(matrix):
            require_matrix("psd", matrix, square=True)
            eigenvalues = jnp.linalg.eigvalsh(matrix)
            skew = jnp.max(jnp.abs(matrix - matrix.T))
            violation = jnp.maximum(skew, -eigenvalues[0])
            return jnp.stack([violation, jnp.max(jnp.abs(eigenvalues))])

        pairs = per_matrix("psd", one_matrix, x)  # (violation, size)
        return largest(jax.tree.map(lambda pair: indicator(pair[..., :1], pair[..., 1:]), pairs))

    def prox(v, step, scale):

        def one_matrix(matrix):
            require_matrix("psd", matrix, square=True)
            return _positive_part((matrix + matrix.T) / 2)

        return per_matrix("psd", one_matrix, v)

    return Penalty(value, prox)


def _shrink_slopes(values, new, number):
    return (new > 0) | (number == 0)


def _ball_slopes(values, new, radius):
    return (radius > 0) & ((new > 0) | jnp.all(new == values))


@jax.custom_jvp
def _positive_part(matrix: Array) -> Array:
    """A symmetric matrix with its negative eigenvalues replaced by zero."""
    values, basis = symmetric_eigh(matrix)
    return (basis * jnp.maximum(values, 0)[None, :]) @ basis.T


@_positive_part.defjvp
def _positive_part_jvp(primals, tangents):
    values, basis = jnp.linalg.eigh(primals[0])
    new = jnp.maximum(values, 0)
    slopes = (values > 0).astype(values.dtype)
    inner = basis.T @ tangents[0] @ basis
    core = difference_quotients(values, new, slopes) * inner
    return (basis * new[None, :]) @ basis.T, basis @ core @ basis.T
