"""Penalties of vectors applied to the singular values of matrices."""

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.calculus.compose import agree
from fcojax.transforms.indicators import largest
from fcojax.transforms.penalty import Penalty, strength
from fcojax.transforms.singular_values import apply_map, per_matrix, values_of


@factory
def on_singular_values(penalty: Penalty) -> Penalty:
    r"""Apply a penalty to the singular values of each matrix, :math:`\psi(\sigma(X); \lambda)`.

    .. math:: \mathrm{prox}(V) = U \,\mathrm{diag}(\mathrm{prox}_{t\psi}(\sigma))\, W^T

    for the thin singular value decomposition V = U diag(sigma) W^T. A leaf of shape (..., m, n) is
    a stack of matrices, over which the penalty is summed.

    Two conditions on singular values share one decomposition if they are combined first:
    ``on_singular_values(with_box(l1(), -r, r))`` is the nuclear norm inside the ball of the
    spectral norm with radius r. Two maps, one after the other, are the same in exact arithmetic,
    but decompose twice: singular values that the first sets to zero return as rounding errors of
    the largest one, 1e-3 in float32 if that is 10,000.

    ``scale_max`` is that of psi at the singular values of the gradient, and ``subdiff_distance`` is
    ``None``. ``nuclear`` has the values and derivatives of ``on_singular_values(l1())``, and a
    ``subdiff_distance``.

    Args:
      penalty: psi, a sum of one even function over the entries, such as ``l1()``.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms import l1, on_singular_values, with_box
      >>> penalty = on_singular_values(with_box(l1(), -1.5, 1.5))
      >>> penalty.prox(jnp.diag(jnp.array([3.0, 2.0, 0.5])), step=1.0, scale=1.0).diagonal()
      Array([1.5, 1. , 0. ], ...)

    References:
      Lewis, "The convex analysis of unitarily invariant matrix functions", 1995.
    """
    _require_even(penalty)

    def apply(values, numbers):
        return penalty.prox(values, numbers[0], numbers[1])

    def slopes(values, new, numbers):
        return jax.jvp(lambda each: apply(each, numbers), (values,), (jnp.ones_like(values),))[1]

    def of_values(function):
        return lambda matrix: function(values_of(matrix))

    def value(x, scale):
        sums = per_matrix(_NAME, of_values(lambda values: penalty.value(values, scale)), x)
        return tree.total(jax.tree.map(jnp.sum, sums))

    def prox(v, step, scale):
        def one_matrix(matrix):
            numbers = jnp.stack([strength(number, matrix) for number in (step, scale)])
            return apply_map(apply, slopes, matrix, numbers)

        return per_matrix(_NAME, one_matrix, v)

    inner = penalty.scale_max

    least = None if inner is None else lambda g: largest(per_matrix(_NAME, of_values(inner), g))
    return Penalty(value, prox, least, convex=penalty.convex)


_NAME = "on_singular_values"


def _require_even(penalty: Penalty) -> None:
    """Raise ValueError unless psi is a sum of the same even function of each entry."""
    if not penalty.separable:
        raise ValueError(
            "the penalty couples singular values, and the derivative of its prox is not known; "
            "pass a sum over entries, such as l1()."
        )

    def signed_and_reversed(probe):
        points = (probe, -probe, probe[::-1])
        moved, negated, reverse = (penalty.prox(point, 1.0, 1.0) for point in points)
        return moved, -negated, reverse[::-1]

    if not agree(signed_and_reversed):
        raise ValueError(
            "the penalty depends on the order or the sign of entries, and singular values have "
            "neither; pass a sum of one even function, such as l1()."
        )
