r"""Penalties: a function that need not be smooth, and its prox.

A penalty is two pure functions. Its strength is an argument and not a field, so that it is traced
and can be swept; a factory fixes only functions and shapes. A negative Python or numpy number is
refused as a strength; a negative traced one counts as 0.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.types import Params, PyTree, Scalar


class Penalty(NamedTuple):
    r"""A function :math:`\psi(x; \lambda)` with a prox in closed form.

    Attributes:
      value: ``(x, scale) -> psi(x; scale)``. ``scale`` is the strength of a norm or the radius of
        a ball. An indicator is 0 inside its set and infinite outside, with a tolerance of
        ``1 + scale`` times the square root of the machine epsilon.
      prox: ``(v, step, scale) -> argmin_x step * psi(x; scale) + |x - v|^2 / 2``. An indicator
        projects for every step, including zero. The derivative of the prox is exact wherever it
        exists, also at zeros and ties. At a kink it is the one-sided derivative of the side on
        which an entry stays zero, or a constraint is inactive.
      scale_max: ``(gradient at zero) -> the smallest scale at which zero minimises f + psi``, or
        ``None`` if there is no such number. For a psi that is zero on a subspace, pass the gradient
        at the minimiser of f there; at that scale this point minimises f + psi.
      convex: whether psi is convex.
      separable: whether psi is a sum over entries. Its ``prox`` then also accepts a pytree like
        ``v`` for ``step``, with a step t_i for each entry, and computes
        :math:`\mathrm{argmin}_x \psi(x) + \sum_i (x_i - v_i)^2 / 2 t_i`, the prox in the metric
        of an optimiser that scales each entry.
      subdiff_distance: ``(x, v, scale) -> the Euclidean distance of v from the subdifferential of
        psi at x`` (for a set, from its normal cone), or ``None`` if not implemented. If v is minus
        a gradient of f, it is zero exactly where x minimises f + psi. Zeros, ties and active
        bounds of x have to be exact, as in the result of a prox.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms import Penalty
      >>> ridge = Penalty(
      ...     value=lambda x, scale: scale / 2 * jnp.sum(x**2),
      ...     prox=lambda v, step, scale: v / (1 + step * scale))
      >>> ridge.prox(jnp.array([3.0, 6.0]), 1.0, 2.0).tolist()
      [1.0, 2.0]
    """

    example = "l1()"  # for error messages

    value: Callable[[Params, Scalar], jax.Array]
    prox: Callable[[Params, Scalar | PyTree, Scalar], Params]
    scale_max: Callable[[Params], jax.Array] | None = None
    convex: bool = True
    separable: bool = False
    subdiff_distance: Callable[[Params, Params, Scalar], jax.Array] | None = None


def entrywise(
    shrink: Callable[..., jax.Array], v: Params, step: PyTree, scale: Scalar, *others: PyTree
) -> Params:
    """Apply ``shrink(leaf, step, scale, *other leaves)`` to each leaf, in floating point.

    Args:
      shrink: a function of an array in at least float32, and of numbers in its dtype.
      v: the point; results have the dtypes of its leaves.
      step: one step, or a pytree like ``v`` with one for each entry.
      scale: the strength.
      *others: further arguments of ``shrink``, pytrees like ``v``.
    """

    def each(leaf, step, *rest):
        if np.ndim(step) and np.broadcast_shapes(np.shape(step), leaf.shape) != leaf.shape:
            # It would broadcast the leaf.
            raise ValueError(
                f"step has shape {np.shape(step)} but the point {leaf.shape}; pass one number, or "
                "one for each entry."
            )
        return shrink(leaf, not_negative(step, leaf), strength(scale, leaf), *rest)

    wide = tree.floats(v)
    return tree.cast_like(jax.tree.map(each, wide, steps_like(wide, step), *others), v)


def steps_like(v: PyTree, step: PyTree) -> PyTree:
    """Return one step per leaf of ``v``, given one step for all leaves or such a pytree."""
    if jax.tree.structure(step) == jax.tree.structure(v):
        return step
    return jax.tree.map(lambda leaf: step, v)


def strength(number: Scalar, leaf: jax.Array) -> jax.Array:
    """Return a step, scale or radius in the dtype of ``leaf``; 0 for a negative one."""
    if np.ndim(number):
        # Sorts and sums over entries would accept an array and return wrong results.
        raise ValueError(
            f"a step or scale has shape {np.shape(number)}; pass a number of at least 0."
        )
    return not_negative(number, leaf)


def not_negative(number: Scalar | jax.Array, leaf: jax.Array) -> jax.Array:
    """Return numbers in the dtype of ``leaf``: 0 for a negative traced one; others are refused."""
    if not isinstance(number, jax.Array) and not np.all(np.asarray(number, float) >= 0):
        raise ValueError(f"a step or scale is {np.min(number)}; pass a number of at least 0.")
    number = jnp.asarray(number, jnp.result_type(leaf, float))  # no integers
    return jnp.where(number < 0, jnp.zeros_like(number), number)  # maximum has derivative 1/2 at 0


def weight(step: Scalar, scale: Scalar, leaf: jax.Array) -> jax.Array:
    """Return ``step * scale`` in the dtype of ``leaf``."""
    return strength(step, leaf) * strength(scale, leaf)


def times_scale(scale: Scalar, measure: jax.Array) -> jax.Array:
    """Return ``scale * measure`` in the dtype of ``measure``."""
    return strength(scale, measure) * measure
