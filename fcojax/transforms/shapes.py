"""Checks of a factory's arguments against the point that it is applied to, and flat points."""

import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.arguments import shown
from fcojax.types import Array, PyTree


def flattened(x: PyTree) -> tuple[Array, Callable[[Array], PyTree]]:
    """Return all entries in one vector of at least float32, and the map back to the dtypes of x."""
    flat, unravel = ravel_pytree(tree.floats(x))
    return flat, lambda flat: tree.cast_like(unravel(flat), x)


def require_numbers(name: str, given: PyTree) -> None:
    """Raise ``ValueError`` unless an argument of a factory has leaves of real numbers."""
    leaves = jax.tree.leaves(given, is_leaf=lambda leaf: leaf is None)
    if not all(_is_real(leaf) for leaf in leaves):
        raise ValueError(f"{name} is {shown(given)}; pass real numbers, or a pytree of them.")


def _is_real(leaf: Any) -> bool:
    if isinstance(leaf, jax.Array):
        whole = jnp.issubdtype(leaf.dtype, jnp.integer) or leaf.dtype == bool
        return whole or jnp.issubdtype(leaf.dtype, jnp.floating)
    known = isinstance(leaf, numbers.Real | np.ndarray | np.generic)
    if not known or isinstance(leaf, np.ma.MaskedArray):
        return False
    dtype = np.asarray(leaf).dtype  # of objects for a Fraction
    return dtype.kind in "biufO" or jnp.issubdtype(dtype, jnp.floating)


def require_same_shapes(x: PyTree, given: PyTree, name: str) -> None:
    """Raise ValueError unless ``given``, an argument of a factory, is shaped like the point x."""
    needed, found = (jax.tree.map(jnp.shape, t) for t in (x, given))
    if jax.tree.structure(x) != jax.tree.structure(given) or needed != found:
        advice = f"pass {needed}"
        if isinstance(x, list) and not isinstance(given, list):
            advice = "pass a list, with one array for each touched leaf"
        raise ValueError(f"{name} is of shape {found} but the point of {needed}; {advice}.")
