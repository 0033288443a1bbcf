r"""Penalties: a convex function that is not smooth, and its prox.

A penalty is two pure functions. Its strength is an argument and not a field, so that it is traced
and can be swept; a factory fixes only functions and shapes. A negative strength is refused where
it is a Python or numpy number; a traced one cannot be looked at, and counts as 0.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.types import Params, PyTree, Scalar


class Penalty(NamedTuple):
    r"""A function :math:`\psi(x; \lambda)` with a prox in closed form.

    Attributes:
      value: ``(x, scale) -> psi(x; scale)``. ``scale`` is the strength of a norm or the radius of
        a ball; an indicator answers 0 inside its set and infinity outside, where inside means up
        to ``(1 + scale)`` times the square root of the machine epsilon.
      prox: ``(v, step, scale) -> argmin_x step * psi(x; scale) + |x - v|^2 / 2``. An indicator
        projects at every step, zero included. Where the prox is differentiable its derivative is
        exact, at zeros and ties as well, and at a kink it is that of one side: of the side on which
        an entry stays zero, or a constraint does not bind.
      scale_max: ``(gradient at zero) -> the least scale at which zero minimises f + psi``, or
        ``None`` where there is no such number.
      convex: whether psi is convex, so that its prox is nonexpansive and has a conjugate.
      separable: whether psi is a sum over entries. Its prox then also takes a pytree like ``v``
        for ``step``, a step for every entry, and answers
        :math:`\mathrm{argmin}_x \psi(x) + \sum_i (x_i - v_i)^2 / 2 t_i`, the prox in the metric
        of an optimiser that scales every entry by itself.
      subdiff_distance: ``(x, v, scale) -> the Euclidean distance of v from the subdifferential of
        psi at x``, for a set from its normal cone, or ``None`` where nobody has written it down.
        With v minus a gradient of f it is zero exactly where x minimises f + psi. It takes exact
        zeros, ties and bounds for what they are, as a prox makes them.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms import Penalty
      >>> ridge = Penalty(
      ...     value=lambda x, scale: scale / 2 * jnp.sum(x**2),
      ...     prox=lambda v, step, scale: v / (1 + step * scale))
      >>> ridge.prox(jnp.array([3.0, 6.0]), 1.0, 2.0).tolist()
      [1.0, 2.0]
    """

    value: Callable[[Params, Scalar], jax.Array]
    prox: Callable[[Params, Scalar | PyTree, Scalar], Params]
    scale_max: Callable[[Params], jax.Array] | None = None
    convex: bool = True
    separable: bool = False
    subdiff_distance: Callable[[Params, Params, Scalar], jax.Array] | None = None


def checked(name: str, penalty: Penalty) -> Penalty:
    """The same penalty, which refuses a negative step or scale where it can see one.

    It answers half precision in half precision and works in float32: float16 overflows at 65504,
    and a sum in bfloat16 stops growing at 256.
    """

    def check(argument, number):
        visible = isinstance(number, int | float | np.ndarray | np.generic)
        if visible and not np.all(np.greater_equal(number, 0)):
            raise ValueError(
                f"{name} was given {argument} {number}, but strengths, radii and steps are at "
                "least 0; pass a non-negative number."
            )

    def value(x, scale):
        check("scale", scale)
        return penalty.value(x, scale)

    def prox(v, step, scale):
        check("step", step)
        check("scale", scale)
        return narrowed(penalty.prox(widened(v), step, scale), v)

    inner = penalty.scale_max
    scale_max = None if inner is None else lambda gradient: inner(widened(gradient))
    gap = penalty.subdiff_distance

    def subdiff_distance(x, v, scale):
        check("scale", scale)
        assert gap is not None
        return gap(widened(x), widened(v), scale)

    distance = None if gap is None else subdiff_distance
    return Penalty(value, prox, scale_max, penalty.convex, penalty.separable, distance)


def widened(x: PyTree) -> PyTree:
    """The leaves of half precision as float32, the others as they are."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if _is_half(leaf.dtype) else leaf, x)


def narrowed(x: PyTree, like: PyTree) -> PyTree:
    """The leaves back in the dtypes of those of ``like``."""
    return jax.tree.map(lambda leaf, other: leaf.astype(other.dtype), x, like)


def _is_half(dtype):
    return jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32


def entrywise(shrink: Callable[..., jax.Array], v: Params, step: PyTree, *others: PyTree) -> Params:
    """``shrink(leaf, step, *other leaves)`` leaf by leaf, of one step or of a pytree like ``v``."""
    return jax.tree.map(shrink, v, steps_like(v, step), *others)


def steps_like(v: PyTree, step: PyTree) -> PyTree:
    """A pytree like ``v`` with the steps of each leaf, from one step or from such a pytree."""
    if jax.tree.structure(step) == jax.tree.structure(v):
        return step
    return jax.tree.map(lambda leaf: step, v)


def strength(number: Scalar, leaf: jax.Array) -> jax.Array:
    """A step, scale or radius in the dtype of the leaf it is about to meet, and at least 0."""
    number = jnp.asarray(number, leaf.dtype)
    return jnp.where(number < 0, jnp.zeros_like(number), number)  # a maximum has slope 1/2 at 0


def weight(step: Scalar, scale: Scalar, leaf: jax.Array) -> jax.Array:
    """``step * scale`` in the dtype of the leaf it is about to meet."""
    return strength(step, leaf) * strength(scale, leaf)


def at_strength(scale: Scalar, measure: jax.Array) -> jax.Array:
    """``scale * measure``, in the dtype of the measure."""
    return strength(scale, measure) * measure


def indicator(violation: jax.Array, scale: Scalar = 0.0) -> jax.Array:
    """Zero where the violation of a constraint is no more than rounding, else infinity."""
    room = np.sqrt(jnp.finfo(violation.dtype).eps) * (1 + jnp.asarray(scale, violation.dtype))
    return jnp.where(violation <= room, 0.0, jnp.inf).astype(violation.dtype)


def largest(per_entry: PyTree) -> jax.Array:
    """The largest entry over all leaves, or 0 if there is none above it."""
    tops = [jnp.max(leaf, initial=0.0) for leaf in jax.tree.leaves(per_entry)]
    return jnp.max(jnp.stack(tops)) if tops else jnp.zeros(())


def require_shapes_of(x: PyTree, given: PyTree, name: str) -> None:
    """Raises unless ``given``, which a factory was handed, has the structure and shapes of x."""
    wanted, found = (jax.tree.map(jnp.shape, t) for t in (x, given))
    if jax.tree.structure(x) != jax.tree.structure(given) or wanted != found:
        advice = "build the penalty for the structure it is used on"
        if isinstance(x, list) and not isinstance(given, list):
            advice = "pass a list, with one array for each touched leaf"
        raise ValueError(f"{name} has shapes {found} but the point has shapes {wanted}; {advice}.")


def require_penalty(given: Any, whose: str) -> None:
    """Raises unless it is a penalty, and not the factory of one or a mirror.

    Example:
      >>> from fcojax.transforms import l1
      >>> require_penalty(l1, "euclidean")
      Traceback (most recent call last):
      ValueError: euclidean was given the function l1; call it: l1().
    """
    if isinstance(given, Penalty):
        return
    name = getattr(given, "__name__", "")
    if callable(given) and name:
        arguments = inspect.signature(given).parameters.values()
        needed = "..." if any(_is_needed(one) for one in arguments) else ""
        raise ValueError(f"{whose} was given the function {name}; call it: {name}({needed}).")
    of_mirror = isinstance(getattr(given, "penalty", None), Penalty)
    advice = "pass its .penalty" if of_mirror else "pass a penalty, as in l1()"
    raise ValueError(f"{whose} was given a {type(given).__name__}; {advice}.")


def _is_needed(argument: inspect.Parameter) -> bool:
    return argument.default is argument.empty
