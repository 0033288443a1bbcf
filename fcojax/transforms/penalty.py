r"""Penalties: a convex function that is not smooth, and its prox.

A penalty is two pure functions. Its strength is an argument and not a field, so that it is traced
and can be swept; a factory fixes only functions and shapes. A negative Python or numpy number is
refused as a strength; a negative traced one counts as 0.
"""

import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.arguments import shown
from fcojax.types import Params, PyTree, Scalar

_NUM_BISECTIONS = 60  # enough for the last bit of a float64


class Penalty(NamedTuple):
    r"""A function :math:`\psi(x; \lambda)` with a prox in closed form.

    Attributes:
      value: ``(x, scale) -> psi(x; scale)``. ``scale`` is the strength of a norm or the radius of
        a ball. An indicator is 0 inside its set and infinite outside, with a tolerance of
        ``1 + scale`` times the square root of the machine epsilon.
      prox: ``(v, step, scale) -> argmin_x step * psi(x; scale) + |x - v|^2 / 2``. An indicator
        projects at every step, zero included. The derivative of the prox is exact wherever it
        exists, also at zeros and ties. At a kink it is one-sided: that of the side on which an
        entry stays zero, or a constraint is inactive.
      scale_max: ``(gradient at zero) -> the least scale at which zero minimises f + psi``, or
        ``None`` if there is no such number. For a psi that leaves some points free, the gradient is
        that at the best of them, and the scale the least at which it minimises f + psi.
      convex: whether psi is convex.
      separable: whether psi is a sum over entries. Its ``prox`` then also accepts a pytree like
        ``v`` for ``step``, with a step t_i for each entry, and computes
        :math:`\mathrm{argmin}_x \psi(x) + \sum_i (x_i - v_i)^2 / 2 t_i`, the prox in the metric
        of an optimiser that scales each entry.
      subdiff_distance: ``(x, v, scale) -> the Euclidean distance of v from the subdifferential of
        psi at x`` (for a set, from its normal cone), or ``None`` if not implemented. If v is minus
        a gradient of f, it is zero exactly where x minimises f + psi. Zeros, ties and active
        bounds of x have to be exact, as those of a prox are.
      diagonal_prox: for a psi that is no sum over entries, the prox with a step t_i for each entry:
        ``(v, steps, scale)`` with steps like ``v``, or ``None`` if it has no known form.

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
    diagonal_prox: Callable[[Params, PyTree, Scalar], Params] | None = None


def checked(name: str, penalty: Penalty) -> Penalty:
    """Add checks of step and scale to a penalty, and compute half precision in float32.

    float16 overflows at 65504, and a sum in bfloat16 stops growing at 256. Results have the dtypes
    of the arguments.

    Args:
      name: of the penalty, for error messages.
      penalty: functions of numbers of at least 0, and of leaves in float32 or float64.
    """

    def check(argument, number, each=None):
        if not _is_strength(number, each):
            more = "" if each is None else ", or one for each entry"
            raise ValueError(
                f"{argument} of {name} is {shown(number)}; pass a number of at least 0{more}."
            )

    def value(x, scale):
        check("scale", scale)
        return penalty.value(x, scale)

    def prox(v, step, scale):
        check("step", step, v if penalty.separable else None)
        check("scale", scale)
        return cast_like(penalty.prox(to_float32(v), step, scale), v)

    inner = penalty.scale_max
    scale_max = None if inner is None else lambda gradient: inner(to_float32(gradient))
    inner_distance = penalty.subdiff_distance

    def subdiff_distance(x, v, scale):
        check("scale", scale)
        assert inner_distance is not None
        return inner_distance(to_float32(x), to_float32(v), scale)

    inner_diagonal = penalty.diagonal_prox

    def diagonal_prox(v, steps, scale):
        check("steps", steps, v)
        check("scale", scale)
        assert inner_diagonal is not None
        wide = to_float32(v)
        steps = jax.tree.map(
            lambda leaf, step: jnp.broadcast_to(strength(step, leaf), leaf.shape),
            wide,
            steps_like(wide, steps),
        )
        return cast_like(inner_diagonal(wide, steps, scale), v)

    distance = None if inner_distance is None else subdiff_distance
    diagonal = None if inner_diagonal is None else diagonal_prox
    return Penalty(value, prox, scale_max, penalty.convex, penalty.separable, distance, diagonal)


def _is_strength(number: PyTree, each: PyTree | None) -> bool:
    """Whether this is one number of at least 0, or an array or a pytree of them for ``each``.

    A step with more entries than its leaf would broadcast the leaf. The values of arrays on a
    device and of traced ones are not looked at.
    """
    if each is None:
        return _is_real(number) and np.ndim(number) == 0
    structure, steps = jax.tree.structure(number), jax.tree.leaves(number)
    if structure != jax.tree.structure(each) and structure != jax.tree.structure(0):
        return False
    leaves = jax.tree.leaves(each)
    steps = steps if structure == jax.tree.structure(each) else steps * len(leaves)
    shapes = [(np.shape(step), np.shape(leaf)) for step, leaf in zip(steps, leaves, strict=True)]
    return all(map(_is_real, steps)) and all(_spreads_to(*pair) for pair in shapes)


def _spreads_to(shape: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    """Return whether an array of a shape can be broadcast to one that is no smaller."""
    try:
        return np.broadcast_shapes(shape, larger) == larger
    except ValueError:
        return False


def _is_real(leaf: Any, any_sign: bool = False) -> bool:
    if isinstance(leaf, jax.Array):
        whole = jnp.issubdtype(leaf.dtype, jnp.integer) or leaf.dtype == bool
        return whole or jnp.issubdtype(leaf.dtype, jnp.floating)
    known = isinstance(leaf, numbers.Real | np.ndarray | np.generic)
    if not known or isinstance(leaf, np.ma.MaskedArray):
        return False
    dtype = np.asarray(leaf).dtype  # of objects for a Fraction
    if dtype.kind not in "biufO" and not jnp.issubdtype(dtype, jnp.floating):
        return False
    return any_sign or bool(np.all(np.asarray(leaf, float) >= 0))


def to_float32(x: PyTree) -> PyTree:
    """Cast leaves in half precision to float32."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if _is_half(leaf.dtype) else leaf, x)


def cast_like(x: PyTree, like: PyTree) -> PyTree:
    """Cast the leaves to the dtypes of those of ``like``."""
    return jax.tree.map(lambda leaf, other: leaf.astype(other.dtype), x, like)


def _is_half(dtype):
    return jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32


def entrywise(shrink: Callable[..., jax.Array], v: Params, step: PyTree, *others: PyTree) -> Params:
    """Apply ``shrink(leaf, step, *other leaves)`` to each leaf, for one step or one per entry."""
    return jax.tree.map(shrink, v, steps_like(v, step), *others)


def steps_like(v: PyTree, step: PyTree) -> PyTree:
    """Return a pytree like ``v`` of steps, from one step or from such a pytree."""
    if jax.tree.structure(step) == jax.tree.structure(v):
        return step
    return jax.tree.map(lambda leaf: step, v)


def strength(number: Scalar, leaf: jax.Array) -> jax.Array:
    """Return a step, scale or radius in the dtype of ``leaf``, and 0 if it is negative."""
    number = jnp.asarray(number, leaf.dtype)
    return jnp.where(number < 0, jnp.zeros_like(number), number)  # maximum has derivative 1/2 at 0


def weight(step: Scalar, scale: Scalar, leaf: jax.Array) -> jax.Array:
    """Return ``step * scale`` in the dtype of ``leaf``."""
    return strength(step, leaf) * strength(scale, leaf)


def times_scale(scale: Scalar, measure: jax.Array) -> jax.Array:
    """Return ``scale * measure`` in the dtype of ``measure``."""
    return strength(scale, measure) * measure


def indicator(violation: jax.Array, scale: Scalar = 0.0) -> jax.Array:
    """Return 0 if a violation is at most a rounding error in numbers up to scale, else infinity."""
    tolerance = np.sqrt(jnp.finfo(violation.dtype).eps) * (1 + jnp.asarray(scale, violation.dtype))
    return jnp.where(violation <= tolerance, 0.0, jnp.inf).astype(violation.dtype)


def max_abs(x: PyTree) -> jax.Array:
    """Return the largest absolute value over all leaves."""
    return largest(jax.tree.map(jnp.abs, x))


def l1_norm(x: PyTree) -> jax.Array:
    """Return the sum of the absolute values over all leaves."""
    return tree.total(jax.tree.map(lambda leaf: jnp.sum(jnp.abs(leaf)), x))


def least_scale(stays_zero: Callable[[jax.Array], jax.Array], high: jax.Array) -> jax.Array:
    """Return the least scale in [0, high] with ``stays_zero(scale)``, by bisection."""

    def bisect(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        enough = stays_zero(middle)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    start = jnp.zeros_like(high), high
    return jax.lax.fori_loop(0, _NUM_BISECTIONS, bisect, start)[1]


def largest(per_entry: PyTree) -> jax.Array:
    """Return the largest entry over all leaves, at least 0."""
    tops = [jnp.max(leaf, initial=0.0) for leaf in jax.tree.leaves(per_entry)]
    return jnp.max(jnp.stack(tops)) if tops else jnp.zeros(())


def require_numbers(name: str, given: PyTree) -> None:
    """Raise ``ValueError`` unless an argument of a factory has leaves of real numbers."""
    leaves = jax.tree.leaves(given, is_leaf=lambda leaf: leaf is None)
    if not all(_is_real(leaf, any_sign=True) for leaf in leaves):
        raise ValueError(f"{name} is {shown(given)}; pass real numbers, or a pytree of them.")


def require_same_shapes(x: PyTree, given: PyTree, name: str) -> None:
    """Raise ValueError unless ``given``, an argument of a factory, is shaped like the point x."""
    needed, found = (jax.tree.map(jnp.shape, t) for t in (x, given))
    if jax.tree.structure(x) != jax.tree.structure(given) or needed != found:
        advice = f"pass {needed}"
        if isinstance(x, list) and not isinstance(given, list):
            advice = "pass a list, with one array for each touched leaf"
        raise ValueError(f"{name} is of shape {found} but the point of {needed}; {advice}.")
