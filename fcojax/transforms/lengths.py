"""Euclidean norms whose squares neither overflow nor vanish, and which have derivative 0 at 0.

Entries are measured in units of the largest of them before they are squared. The norm does not
depend on the unit, so its derivative is taken with the unit held fixed.
"""

import functools

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.transforms.penalty import largest
from fcojax.types import Array, PyTree


def length(x: PyTree) -> Array:
    """The Euclidean norm over all leaves jointly; 0 for a tree without entries."""
    unit = unit_of(largest(jax.tree.map(jnp.abs, x)))
    squares = jax.tree.map(jnp.square, tree.scale(1 / unit, x))
    return unit * root(tree.total(jax.tree.map(jnp.sum, squares)))


def lengths_along(leaf: Array, axis: int | tuple[int, ...] | None) -> Array:
    """The norms of the slices of a leaf that run along ``axis``, with the axis kept at size 1."""
    unit = unit_of(jnp.max(jnp.abs(leaf), axis=axis, keepdims=True, initial=0.0))
    ratios = leaf * jnp.broadcast_to(1 / unit, leaf.shape)
    return unit * root(jnp.sum(jnp.square(ratios), axis=axis, keepdims=True))


def lengths_by_label(x: PyTree, labels: PyTree, count: int) -> Array:
    """The norms of the ``count`` groups of entries with the same label, over all leaves."""

    def tops(leaf, label):
        return jax.ops.segment_max(jnp.abs(leaf.ravel()), label.ravel(), count)

    def squares(leaf, label):
        ratios = leaf.ravel() * inverse[label.ravel()]
        return jax.ops.segment_sum(jnp.square(ratios), label.ravel(), count)

    each = jax.tree.leaves(jax.tree.map(tops, x, labels))
    if not each:
        return jnp.zeros(0)
    unit = unit_of(functools.reduce(jnp.maximum, each))
    inverse = 1 / unit
    return unit * root(tree.total(jax.tree.map(squares, x, labels)))


def unit_of(top: Array) -> Array:
    """What to measure entries in of which ``top`` is the largest: about that, or 1 if that is 0.

    Its inverse is a normal number as well, so entries may be multiplied by that.
    """
    edge = 2.0 ** (jnp.finfo(top.dtype).maxexp - 8)
    unit = jnp.where(top > 0, jnp.clip(top, 1 / edge, edge), jnp.ones_like(top))
    return jax.lax.stop_gradient(unit)


def root(squares: Array) -> Array:
    """The square root, with derivative 0 instead of infinity at 0."""
    zero = squares == 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, squares)))


@jax.custom_jvp
def quotient(part: Array, whole: Array) -> Array:
    """``part / whole``, whose derivative does not square the denominator."""
    return part / whole


@quotient.defjvp
def _quotient_jvp(primals, tangents):
    ratio = quotient(*primals)
    part_along, whole_along = tangents
    return ratio, (part_along - ratio * whole_along) / primals[1]
