"""Norms of groups without overflow or underflow of squares, like ``tree.euclidean_norm``."""

import functools

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.types import Array, PyTree

# Products with a QR factor have errors of 1 to 3 in these units, eps times the root of the size.
_ROUNDING = 32.0


def relative_rounding(x: PyTree) -> float:
    """Return a bound for the relative rounding error of an orthonormal map of x."""
    eps = max((float(jnp.finfo(leaf.dtype).eps) for leaf in jax.tree.leaves(x)), default=0.0)
    num_entries = sum(leaf.size for leaf in jax.tree.leaves(x))
    return min(_ROUNDING * eps * num_entries**0.5, eps**0.5)


def norms_along_axis(leaf: Array, axis: int | tuple[int, ...] | None) -> Array:
    """Return the norms of the slices of a leaf along ``axis``, which is kept with size 1."""
    axes = axis if isinstance(axis, tuple) else () if axis is None else (axis,)
    if not all(-leaf.ndim <= one < leaf.ndim for one in axes):
        raise ValueError(f"axis is {axis} for a leaf of shape {leaf.shape}; pass one that it has.")
    unit = tree.safe_unit(jnp.max(jnp.abs(leaf), axis=axis, keepdims=True, initial=0.0))
    ratios = leaf * jnp.broadcast_to(1 / unit, leaf.shape)
    return unit * tree.safe_sqrt(jnp.sum(jnp.square(ratios), axis=axis, keepdims=True))


def norms_by_label(x: PyTree, labels: PyTree, count: int) -> Array:
    """Return the norms of the entries with label 0, ..., ``count - 1``, over all leaves."""

    def tops(leaf, label):
        return jax.ops.segment_max(jnp.abs(leaf.ravel()), label.ravel(), count)

    def squares(leaf, label):
        ratios = leaf.ravel() * inverse[label.ravel()]
        return jax.ops.segment_sum(jnp.square(ratios), label.ravel(), count)

    each = jax.tree.leaves(jax.tree.map(tops, x, labels))
    if not each:
        return jnp.zeros(0)
    unit = tree.safe_unit(functools.reduce(jnp.maximum, each))
    inverse = 1 / unit
    return unit * tree.safe_sqrt(tree.total(jax.tree.map(squares, x, labels)))


@jax.custom_jvp
def quotient(part: Array, whole: Array) -> Array:
    """Return ``part / whole``, with a derivative that does not square the denominator."""
    return part / whole


@quotient.defjvp
def _quotient_jvp(primals, tangents):
    ratio = quotient(*primals)
    part_dot, whole_dot = tangents
    return ratio, (part_dot - ratio * whole_dot) / primals[1]
