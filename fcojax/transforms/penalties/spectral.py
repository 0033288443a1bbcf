r"""Penalties and constraints on the singular values or eigenvalues of matrices.

A leaf of shape (..., m, n) is a stack of matrices, each of them a block of its own: a norm is a sum
over all matrices of the pytree, and a set is to be met by every one with the same ``scale``.

References: Cai, Candes and Shen, A singular value thresholding algorithm for matrix completion,
2010; Lewis and Sendov, Twice differentiable spectral functions, 2001, for the derivatives.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.factorisations import singular_values, symmetric_eigh, thin_svd
from fcojax.memo import memoised
from fcojax.transforms.lengths import length
from fcojax.transforms.penalty import (
    Penalty,
    at_strength,
    checked,
    indicator,
    largest,
    strength,
    weight,
    widened,
)
from fcojax.transforms.subdifferentials import off_nuclear
from fcojax.transforms.thresholds import clipped, onto_l1_ball, soft_threshold
from fcojax.types import Array, PyTree


@memoised
def nuclear() -> Penalty:
    r"""The nuclear norm, :math:`\psi(X) = \lambda \sum_i \sigma_i(X)`, with lambda as ``scale``.

    .. math:: \mathrm{prox}(V) = \mathrm{argmin}_X\; t \lambda \|X\|_* + \tfrac12 \|X - V\|_F^2
                               = U \,\mathrm{diag}(\max(\sigma_i - t\lambda, 0))\, W^T

    for the thin singular value decomposition V = U diag(sigma) W^T. Singular values up to t lambda
    vanish, so the rank falls; the zero matrix answers itself. ``scale_max`` is the largest singular
    value of the gradient at zero. The derivative is exact and finite, also where singular values
    are equal or zero; for one at the threshold it is taken as if it were below. A leaf that is not
    a matrix is refused.

    Example:
      >>> nuclear().prox(jnp.array([[3.0, 0.0], [0.0, 0.5]]), step=1.0, scale=1.0)
      Array([[2., 0.], [0., 0.]], ...)

    References:
      Cai, Candes and Shen, 2010, theorem 2.1.
    """

    def value(x, scale):
        each = _per_matrix("nuclear", lambda matrix: jnp.sum(_singular_values(matrix)), x)
        return at_strength(scale, tree.total(jax.tree.map(jnp.sum, each)))

    def prox(v, step, scale):
        def one_matrix(matrix):
            threshold = weight(step, scale, matrix)
            return _on_singular_values(_SHRINK, matrix, threshold)

        return _per_matrix("nuclear", one_matrix, v)

    def scale_max(gradient):
        return largest(_per_matrix("nuclear", lambda matrix: _singular_values(matrix)[0], gradient))

    def subdiff_distance(x, v, scale):
        def one_leaf(leaf, slope):
            pairs = jnp.stack([leaf, slope], axis=-3)
            shape = (-1, *pairs.shape[-3:])
            return jax.vmap(lambda pair: off_nuclear(pair[0], pair[1], strength(scale, leaf)))(
                pairs.reshape(shape)
            )

        _per_matrix("nuclear", lambda matrix: matrix, x)
        return length(jax.tree.map(one_leaf, x, v))

    return checked("nuclear", Penalty(value, prox, scale_max, subdiff_distance=subdiff_distance))


@memoised
def nuclear_ball() -> Penalty:
    r"""The ball :math:`\{\|X\|_* \le r\}` of the nuclear norm, with the radius r as ``scale``.

    .. math:: \mathrm{prox}(V) = \mathrm{argmin}_{\|X\|_* \le r} \tfrac12 \|X - V\|_F^2
                               = U \,\mathrm{diag}(\max(\sigma_i - \theta, 0))\, W^T

    where theta >= 0 brings the sum of the singular values down to r: the projection onto the l1
    ball, applied to them. The step has no effect. For r = 0 the answer is 0.

    Example:
      >>> nuclear_ball().prox(jnp.array([[3.0, 0.0], [0.0, 2.0]]), step=1.0, scale=3.0)
      Array([[2., 0.], [0., 1.]], ...)
    """

    def value(x, scale):
        def excess(matrix):
            return jnp.sum(_singular_values(matrix)) - jnp.asarray(scale, matrix.dtype)

        return indicator(largest(_per_matrix("nuclear_ball", excess, x)), scale)

    def prox(v, step, scale):
        del step

        def one_matrix(matrix):
            radius = strength(scale, matrix)
            return _on_singular_values(_TO_BALL, matrix, radius)

        return _per_matrix("nuclear_ball", one_matrix, v)

    return checked("nuclear_ball", Penalty(value, prox))


@memoised
def spectral_ball() -> Penalty:
    r"""The ball :math:`\{\sigma_1(X) \le r\}` of the spectral norm, with the radius r as ``scale``.

    .. math:: \mathrm{prox}(V) = \mathrm{argmin}_{\sigma_1(X) \le r} \tfrac12 \|X - V\|_F^2
                               = U \,\mathrm{diag}(\min(\sigma_i, r))\, W^T

    The step has no effect. For r = 0 the answer is 0. It keeps a layer r-Lipschitz.

    Example:
      >>> spectral_ball().prox(jnp.array([[3.0, 0.0], [0.0, 0.5]]), step=1.0, scale=1.0)
      Array([[1. , 0. ], [0. , 0.5]], ...)
    """

    def value(x, scale):
        def excess(matrix):
            return _singular_values(matrix)[0] - jnp.asarray(scale, matrix.dtype)

        return indicator(largest(_per_matrix("spectral_ball", excess, x)), scale)

    def prox(v, step, scale):
        del step

        def one_matrix(matrix):
            radius = strength(scale, matrix)
            return _on_singular_values(_CUT, matrix, radius)

        return _per_matrix("spectral_ball", one_matrix, v)

    return checked("spectral_ball", Penalty(value, prox))


@memoised
def rank_ball(k: int) -> Penalty:
    r"""The matrices of rank at most k. Not convex.

    .. math:: \mathrm{prox}(V) \in \mathrm{argmin}_{\mathrm{rank} X \le k} \tfrac12 \|X - V\|_F^2,
              \qquad U \,\mathrm{diag}(\sigma_1, \dots, \sigma_k, 0, \dots, 0)\, W^T

    One nearest point; there are several where the k-th and the next singular value are equal, and
    the derivative, which grows with the inverse of their gap, is then answered as if the gap
    stayed. Neither step nor scale has an effect; k = 0 answers 0.

    Args:
      k: the largest rank allowed, at most the smaller side of the matrices.

    Example:
      >>> rank_ball(1).prox(jnp.array([[3.0, 0.0], [0.0, 2.0]]), step=1.0, scale=1.0)
      Array([[3., 0.], [0., 0.]], ...)

    References:
      Eckart and Young, The approximation of one matrix by another of lower rank, 1936.
    """
    if k < 0:
        raise ValueError(f"rank_ball was given k = {k}, but a rank is at least 0.")

    def require_room(matrix):
        if k > min(matrix.shape):
            raise ValueError(
                f"rank_ball was given k = {k} and met a matrix of shape {matrix.shape}, whose rank "
                f"is at most {min(matrix.shape)}; pass a k no larger than that."
            )

    def value(x, scale):
        del scale

        def excess(matrix):
            require_room(matrix)
            values = _singular_values(matrix)
            beyond = values[k] if k < values.size else jnp.zeros((), matrix.dtype)
            return indicator(beyond, values[0])

        return largest(_per_matrix("rank_ball", excess, x))

    def prox(v, step, scale):
        del step, scale

        def one_matrix(matrix):
            require_room(matrix)
            size = min(matrix.shape)
            kept = (jnp.arange(size) < k).astype(matrix.dtype)
            return _on_singular_values(_KEEP, matrix, kept)

        return _per_matrix("rank_ball", one_matrix, v)

    return checked("rank_ball", Penalty(value, prox, convex=False))


@memoised
def psd() -> Penalty:
    r"""The cone of symmetric matrices without negative eigenvalues.

    .. math:: \mathrm{prox}(V) = \mathrm{argmin}_{X = X^T,\, X \succeq 0} \tfrac12 \|X - V\|_F^2
                               = Q \,\mathrm{diag}(\max(\mu_i, 0))\, Q^T

    where :math:`Q\,\mathrm{diag}(\mu)\,Q^T = (V + V^T)/2` is the symmetric part of V: a V that is
    not symmetric is replaced by that first, which is part of the projection. Neither step nor scale
    has an effect. A matrix that is not square is refused.

    Example:
      >>> psd().prox(jnp.array([[2.0, 0.0], [0.0, -1.0]]), step=1.0, scale=1.0)
      Array([[2., 0.], [0., 0.]], ...)

    References:
      Higham, Computing a nearest symmetric positive semidefinite matrix, 1988, theorem 2.1.
    """

    def require_square(matrix):
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(
                f"psd met a matrix of shape {matrix.shape}; only a square one can be positive "
                "semidefinite. Choose the square leaves with on_subtree."
            )

    def value(x, scale):
        del scale

        def one_matrix(matrix):
            require_square(matrix)
            eigenvalues = jnp.linalg.eigvalsh(widened(matrix)).astype(matrix.dtype)
            skew = jnp.max(jnp.abs(matrix - matrix.T))
            violation = jnp.maximum(skew, -eigenvalues[0])
            return indicator(violation, jnp.max(jnp.abs(eigenvalues)))

        return largest(_per_matrix("psd", one_matrix, x))

    def prox(v, step, scale):
        del step, scale

        def one_matrix(matrix):
            require_square(matrix)
            return _positive_part((matrix + matrix.T) / 2)

        return _per_matrix("psd", one_matrix, v)

    return checked("psd", Penalty(value, prox))


def _per_matrix(name: str, function: Callable[[Array], Array], x: PyTree) -> PyTree:
    """The function of every matrix in the pytree, stacked as the matrices were."""

    def one_leaf(leaf):
        if leaf.ndim < 2:
            raise ValueError(
                f"{name} met a leaf of shape {leaf.shape}, which is not a matrix; choose the "
                f"matrices with on_subtree({name}(...), lambda path, leaf: leaf.ndim >= 2)."
            )
        if not leaf.size:
            return leaf
        answers = jax.vmap(function)(leaf.reshape(-1, *leaf.shape[-2:]))
        return answers.reshape(*leaf.shape[:-2], *answers.shape[1:])

    return jax.tree.map(one_leaf, x)


def _singular_values(matrix: Array) -> Array:
    finite, usable = _or_zero(widened(matrix))
    values = singular_values(usable)
    return jnp.where(finite, values, jnp.nan).astype(matrix.dtype)


def _or_zero(matrix: Array) -> tuple[Array, Array]:
    """Whether the matrix is finite, and zero in its place if not.

    A run that diverges would have LAPACK print a line for each matrix that it cannot decompose.
    """
    finite = jnp.all(jnp.isfinite(matrix))
    return finite, jnp.where(finite, matrix, 0)


class _Map(NamedTuple):
    """What happens to the singular values, and what the derivative must know about it.

    Given one level for all, every value goes through the same piecewise linear function of it.

    Attributes:
      act: ``(values, number) -> new values``. The level may depend on all of the values.
      slopes: ``(values, new values, number) -> slopes`` of that function with the level held.
      steep: whether the derivative has the gap between two values in a denominator, where a gap
        of rounding is noise: one up to sqrt(eps) of the largest value then counts as none.
    """

    act: Callable[[Array, Array], Array]
    slopes: Callable[[Array, Array, Array], Array]
    steep: bool = False


_SHRINK = _Map(soft_threshold, lambda values, new, number: (new > 0) | (number == 0))
_TO_BALL = _Map(
    onto_l1_ball,
    lambda values, new, radius: (radius > 0) & ((new > 0) | jnp.all(new == values)),
)
_CUT = _Map(
    lambda values, radius: clipped(values, *jnp.broadcast_arrays(-radius, radius, values)[:2]),
    lambda values, new, radius: (values <= radius) & (radius > 0),
)
_KEEP = _Map(jnp.multiply, lambda values, new, kept: kept, steep=True)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _on_singular_values(rule: _Map, matrix: Array, number: Array) -> Array:
    """``U diag(act(sigma, number)) W^T``."""
    finite, matrix = _or_zero(matrix)
    left, values, right = thin_svd(matrix)
    answer = (left * rule.act(values, number)[None, :]) @ right
    return jnp.where(finite, answer, jnp.nan)


@_on_singular_values.defjvp
def _on_singular_values_jvp(rule, primals, tangents):
    matrix, number = primals
    along, number_along = tangents
    if matrix.shape[0] < matrix.shape[1]:  # below, U may have a complement and W has none
        tall = (matrix.T, number), (along.T, number_along)
        return tuple(y.T for y in _on_singular_values_jvp(rule, *tall))
    left, values, right = jnp.linalg.svd(matrix, full_matrices=False)
    # A zero that the decomposition rounded upwards would have the derivative of a positive value.
    rounding = jnp.finfo(values.dtype).eps * max(matrix.shape) * jnp.max(values)
    values = jnp.where(values <= rounding, 0, values)
    image = along @ right.T
    inner = left.T @ image
    new, new_along = jax.jvp(rule.act, (values, number), (jnp.diagonal(inner), number_along))
    slopes = rule.slopes(values, new, number).astype(values.dtype)
    symmetric, skew = (inner + inner.T) / 2, (inner - inner.T) / 2
    turned = _difference_quotients(values, new, slopes, rule.steep) * symmetric
    turned += _sum_quotients(values, new, slopes) * skew
    turned = jnp.where(jnp.eye(values.size, dtype=bool), jnp.diag(new_along), turned)
    positive = values > 0
    ratios = jnp.where(positive, new / jnp.where(positive, values, 1), slopes)
    outside = (image - left @ inner) * ratios[None, :]
    return (left * new[None, :]) @ right, (left @ turned + outside) @ right


@jax.custom_jvp
def _positive_part(matrix: Array) -> Array:
    """Of a symmetric matrix: its negative eigenvalues replaced by zero."""
    values, basis = symmetric_eigh(matrix)
    return (basis * jnp.maximum(values, 0)[None, :]) @ basis.T


@_positive_part.defjvp
def _positive_part_jvp(primals, tangents):
    values, basis = jnp.linalg.eigh(primals[0])
    new = jnp.maximum(values, 0)
    slopes = (values > 0).astype(values.dtype)
    inner = basis.T @ tangents[0] @ basis
    turned = _difference_quotients(values, new, slopes) * inner
    return (basis * new[None, :]) @ basis.T, basis @ turned @ basis.T


def _difference_quotients(x: Array, y: Array, slopes: Array, steep: bool = False) -> Array:
    """``(y_i - y_j) / (x_i - x_j)`` for a y that is piecewise linear in x, with two pieces.

    Two x on one piece have its slope, to the last digit however close they are. For two that
    straddle the kink both differences are exact. The mean slope where x is equal and y is not.
    """
    gap = x[:, None] - x[None, :]
    tie = jnp.sqrt(jnp.finfo(x.dtype).eps) if steep else 0.0
    tied = jnp.abs(gap) <= tie * jnp.max(jnp.abs(x))
    quotients = (y[:, None] - y[None, :]) / jnp.where(tied, 1, gap)
    one, other = slopes[:, None], slopes[None, :]
    return jnp.where(tied | (one == other), (one + other) / 2, quotients)


def _sum_quotients(x: Array, y: Array, slopes: Array) -> Array:
    """``(y_i + y_j) / (x_i + x_j)``, and the slope where both x are 0."""
    total = x[:, None] + x[None, :]
    zero = total == 0
    return jnp.where(zero, slopes[:, None], (y[:, None] + y[None, :]) / jnp.where(zero, 1, total))
