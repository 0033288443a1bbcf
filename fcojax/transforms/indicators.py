"""Values of constraints, and the least strength at which a point stays zero."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.types import Array, PyTree, Scalar

_NUM_BISECTIONS = 60  # enough for the last bit of a float64


def indicator(violation: Array, scale: Scalar = 0.0) -> Array:
    """Return 0 if a violation is at most a rounding error in numbers up to scale, else infinity."""
    tolerance = np.sqrt(jnp.finfo(violation.dtype).eps) * (1 + jnp.asarray(scale, violation.dtype))
    return jnp.where(violation <= tolerance, 0.0, jnp.inf).astype(violation.dtype)


def largest(per_entry: PyTree) -> Array:
    """Return the largest entry over all leaves, at least 0."""
    tops = [jnp.max(leaf, initial=0.0) for leaf in jax.tree.leaves(per_entry)]
    return jnp.max(jnp.stack(tops)) if tops else jnp.zeros(())


def least_scale(stays_zero: Callable[[Array], Array], high: Array) -> Array:
    """Return the smallest scale in [0, high] with ``stays_zero(scale)``, by bisection."""

    def bisect(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        enough = stays_zero(middle)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    start = jnp.zeros_like(high), high
    return jax.lax.fori_loop(0, _NUM_BISECTIONS, bisect, start)[1]
