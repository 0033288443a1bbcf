"""Unit vectors: the sphere, and the oblique manifold of matrices with unit columns."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.manifolds.manifold import Manifold, projected_normal
from fcojax.transforms.singular_values import require_matrix
from fcojax.types import Array

# For squared angles below this, use the series of cos, sin and arcsin: the next term is below the
# rounding error of float64, and the square root at zero is not differentiated.
_SMALL = 1e-3


@factory
def sphere() -> Manifold:
    r"""Return the unit sphere, :math:`\{x : |x| = 1\}`, of an array of any shape as one vector.

    .. math:: P(y) = y / |y|, \qquad P_x(v) = v - \langle x, v \rangle x

    ``project(0)`` is the first unit vector. ``log(x, -x)`` is 0, as the shortest geodesic is not
    unique. ``inverse_retract(x, y)`` is exact for y in the open half sphere around x; on its
    boundary, where no inverse exists, it returns y.

    Example:
      >>> (100 * sphere().project(jnp.array([3.0, 4.0]))).round().tolist()
      [60.0, 80.0]
      >>> float((1000 * sphere().log(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]))).round()[1])
      1571.0

    References:
      Absil, Mahony and Sepulchre, "Optimization Algorithms on Matrix Manifolds", 2008, section 3.5.
    """
    return _unit_vectors(axis=None)


@factory
def oblique() -> Manifold:
    r"""Return the oblique manifold of (d, k) matrices with columns of norm 1, a product of spheres.

    A column of zeros is projected to the first unit vector; other special cases are as for
    ``sphere``.

    Example:
      >>> (100 * oblique().project(jnp.array([[3.0, 0.0], [4.0, 0.0]]))).round().tolist()
      [[60.0, 100.0], [80.0, 0.0]]

    References:
      Absil and Gallivan, "Joint diagonalization on the oblique manifold", 2006.
    """
    return _unit_vectors(axis=0)


def _unit_vectors(axis: int | None) -> Manifold:
    def inner(a, b):
        return jnp.sum(a * b, axis=axis, keepdims=True)

    def project(y):
        return _normalise(y, axis)

    def to_tangent(x, v):
        return v - x * inner(x, v)

    def retract(x, tangent):
        return _normalise(x + tangent, axis)

    def inverse_retract(x, y):
        cosine = inner(x, y)
        right_angle = cosine == 0
        straight = y / jnp.where(right_angle, 1, cosine) - x
        return jnp.where(right_angle, to_tangent(x, y), straight)

    def exp(x, tangent):
        square = inner(tangent, tangent)
        small = square < _SMALL
        angle = jnp.sqrt(jnp.where(small, 1, square))
        cosine = jnp.where(small, _polynomial(square, 1, -1 / 2, 1 / 24, -1 / 720), jnp.cos(angle))
        ratio = smooth_ratio(jnp.sin, square, 1, -1 / 6, 1 / 120, -1 / 5040)
        return _normalise(cosine * x + ratio * tangent, axis)

    def log(x, y):
        cosine = inner(x, y)
        across = y - x * cosine
        square = inner(across, across)
        small = (square < _SMALL) & (cosine > 0)
        sine = jnp.sqrt(jnp.where(small | (square == 0), 1, square))
        series = _polynomial(square, 1, 1 / 6, 3 / 40, 15 / 336, 105 / 3456)
        return jnp.where(small, series, jnp.atan2(sine, cosine) / sine) * across

    return Manifold(
        project, to_tangent, retract, projected_normal(project), 1.0, inverse_retract, exp, log
    )


def _normalise(y: Array, axis: int | None) -> Array:
    """``y`` over its norm, or the first unit vector if it is zero; sums are at least in float32."""
    if axis is not None:
        require_matrix("oblique", y, least=1)
    wide = tree.floats(y)
    # Dividing by the largest entry prevents overflow and underflow of squares. The result does not
    # depend on the divisor, so derivatives treat it as a constant.
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(wide), axis=axis, keepdims=True))
    zero = largest == 0
    flat_index = jnp.arange(y.size).reshape(y.shape)
    first = (flat_index == 0) if axis is None else (flat_index < y.shape[1])
    scaled = jnp.where(zero, first.astype(wide.dtype), wide / jnp.where(zero, 1, largest))
    unit = scaled / jnp.sqrt(jnp.sum(scaled * scaled, axis=axis, keepdims=True))
    return tree.cast_like(unit, y)


def smooth_ratio(function: Callable[[Array], Array], square: Array, *coefficients: float) -> Array:
    """Return ``f(t) / t`` for an odd function from ``t^2``, by its series for small t."""
    small = square < _SMALL
    t = jnp.sqrt(jnp.where(small, 1, square))
    return jnp.where(small, _polynomial(square, *coefficients), function(t) / t)


def _polynomial(t: Array, *coefficients: float) -> Array:
    value = jnp.full_like(t, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * t + coefficient
    return value
