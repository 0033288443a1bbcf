"""Checks of a factory's arguments against the point that it is applied to, and flat points."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.types import Array, PyTree


def flattened(x: PyTree) -> tuple[Array, Callable[[Array], PyTree]]:
    """Return all entries in one vector of at least float32, and the map back to the dtypes of x."""
    flat, unravel = ravel_pytree(tree.floats(x))
    return flat, lambda flat: tree.cast_like(unravel(flat), x)


def on_flat(function: Callable[[Array], Array], x: PyTree) -> PyTree:
    """Apply a function of a vector to all entries of x, which is returned if it has none."""
    flat, unravel = flattened(x)
    return unravel(function(flat)) if flat.size else x


def filled(numbers: PyTree, x: PyTree, name: str) -> PyTree:
    """Return arrays like x: of one number, or of a pytree like x of arrays or numbers."""

    def one_leaf(leaf, number):
        if np.ndim(number) and np.shape(number) != leaf.shape:
            raise ValueError(
                f"{name} has shape {np.shape(number)} but a leaf of the point {leaf.shape}; pass "
                "one like the parameters."
            )
        return jnp.broadcast_to(jnp.asarray(number, leaf.dtype), leaf.shape)

    if jax.tree_util.all_leaves([numbers]) and not np.ndim(numbers):
        return jax.tree.map(lambda leaf: one_leaf(leaf, numbers), x)
    return jax.tree.map(one_leaf, x, numbers)


def require_ordered(lower: PyTree, upper: PyTree) -> None:
    """Raise ``ValueError`` unless bounds, of which one may be a single number, leave a box."""
    low, high = (
        np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(bound)] or [np.zeros(0)])
        for bound in (lower, upper)
    )
    if low.size != high.size and 1 not in (low.size, high.size):
        raise ValueError(f"lower has {low.size} numbers and upper {high.size}; pass as many.")
    if not np.all(low <= high):
        raise ValueError(
            f"the box is empty: lower - upper is up to {np.nanmax(low - high)}; pass bounds with "
            "lower <= upper."
        )


def require_same_shapes(x: PyTree, given: PyTree, name: str) -> None:
    """Raise ValueError unless ``given``, an argument of a factory, is shaped like the point x."""
    needed, found = (jax.tree.map(jnp.shape, t) for t in (x, given))
    if jax.tree.structure(x) != jax.tree.structure(given) or needed != found:
        advice = f"pass {needed}"
        if isinstance(x, list) and not isinstance(given, list):
            advice = "pass a list, with one array for each touched leaf"
        raise ValueError(f"{name} has shape {found} but the point has {needed}; {advice}.")
