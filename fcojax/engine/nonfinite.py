"""Exclude clients with non-finite results from the mean, and from every derivative of the run.

A mask keeps NaN out of values, but not out of reverse mode, where a zero cotangent meets the
client's infinite Jacobian. So the derivative is gated at the client's inputs: an excluded client
has zero derivative with respect to all inputs.
"""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from fcojax import tree
from fcojax.types import Array, PyTree


def guarded(
    function: Callable[..., Any], checked: Callable[[Any], PyTree]
) -> Callable[..., tuple[Any, Array]]:
    """Return the function with a second result: whether its first one is finite.

    ``checked`` selects the part of the result that has to be finite. If it is not, all derivatives
    of the result are zero, in forward and in reverse mode. The function must not close over
    anything that is being differentiated.

    Example:
      >>> half = guarded(lambda x: jnp.sqrt(x), lambda root: root)
      >>> jax.grad(lambda x: jnp.where(*half(x)[::-1], 0.0))(-1.0).item()
      0.0
    """

    def with_check(*args):
        return check(function(*args))

    def check(result):
        leaves = [
            jnp.asarray(leaf)
            for leaf in jax.tree.leaves(checked(result))
            if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
        ]
        finite = tree.all_finite(leaves)
        # A no-op that makes every part of the result depend on `finite`, as the derivatives do. If
        # vmap maps one and not the other, JAX cannot transpose the rule below.
        return tree.where(finite, result, result), finite

    call = jax.custom_jvp(with_check)

    def derivative(primals, tangents):
        leaves, structure = jax.tree.flatten(primals)
        moving = [not isinstance(tangent, SymbolicZero) for tangent in jax.tree.leaves(tangents)]

        def of_moving(*given):
            source = iter(given)
            filled = [next(source) if moves else x for x, moves in zip(leaves, moving, strict=True)]
            return function(*jax.tree.unflatten(structure, filled))

        def pick(everything):
            return list(itertools.compress(jax.tree.leaves(everything), moving))

        result, pushforward = jax.linearize(of_moving, *pick(primals))
        result, finite = check(result)
        moved = pushforward(*_where_real(finite, pick(tangents)))
        no_tangent = np.zeros(jnp.shape(finite), jax.dtypes.float0)
        return (result, finite), (_where_real(finite, moved), no_tangent)

    call.defjvp(derivative, symbolic_zeros=True)  # pyright: ignore[reportArgumentType]: float0
    return call


def _where_real(condition: Array, tangents: PyTree) -> PyTree:
    """Return the tangents where the condition holds, else zero; float0 tangents are unchanged."""
    return jax.tree.map(
        lambda t: t if t.dtype == jax.dtypes.float0 else jnp.where(condition, t, jnp.zeros_like(t)),
        tangents,
    )
