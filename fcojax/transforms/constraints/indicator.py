"""The indicator of a set: 0 inside, infinite outside."""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.types import Array, PyTree, Scalar


def indicator(violation: Array, scale: Scalar = 0.0) -> Array:
    """Return 0 if a violation is at most a rounding error in numbers up to scale, else infinity."""
    tolerance = np.sqrt(jnp.finfo(violation.dtype).eps) * (1 + jnp.asarray(scale, violation.dtype))
    return jnp.where(violation <= tolerance, 0.0, jnp.inf).astype(violation.dtype)


def largest(per_entry: PyTree) -> Array:
    """Return the largest entry over all leaves, at least 0."""
    tops = [jnp.max(leaf, initial=0.0) for leaf in jax.tree.leaves(per_entry)]
    return jnp.max(jnp.stack(tops)) if tops else jnp.zeros(())
