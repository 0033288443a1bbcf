"""Norms that are not separable: l2, l-infinity, group lasso, sparse group lasso."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.arguments import checked_array, factory, shown
from fcojax.transforms.indicators import largest, least_scale
from fcojax.transforms.penalties.l1 import l1_norm, soft_threshold
from fcojax.transforms.penalties.separable import Fraction
from fcojax.transforms.penalty import Penalty, strength, times_scale, weight
from fcojax.transforms.shapes import on_flat, require_same_shapes
from fcojax.transforms.stable_norms import norms_along_axis, norms_by_label, quotient
from fcojax.transforms.thresholds import l1_ball_residual
from fcojax.types import Array, PyTree, Scalar


def shrink_factor(norm: Array, threshold: Array) -> Array:
    """Return ``max(1 - threshold / norm, 0)``; 1 for a threshold of 0, also if the norm is 0."""
    outside = ~(norm <= threshold)  # true for NaN, so that NaN is returned
    kept = 1 - quotient(threshold, jnp.where(outside, norm, 1.0))
    return jnp.where(outside, kept, jnp.where(threshold > 0, 0.0, 1.0))


@factory
def l2() -> Penalty:
    r"""Return the Euclidean norm over all leaves jointly, :math:`\psi(x) = \lambda |x|_2`.

    .. math:: \mathrm{prox}(v) = \max(1 - t \lambda / |v|_2, 0)\, v

    If the norm of v is at most :math:`t \lambda`, the result is exactly zero, with derivative zero
    unless :math:`t \lambda = 0`. ``scale_max`` is the norm of the gradient at zero.

    Example:
      >>> l2().prox(jnp.array([3.0, 4.0]), step=1.0, scale=2.5).tolist()
      [1.5, 2.0]

    References:
      Parikh and Boyd, "Proximal Algorithms", 2014, section 6.5.
    """

    def value(x, scale):
        return times_scale(scale, tree.euclidean_norm(x))

    def prox(v, step, scale):
        wide = tree.floats(v)
        norm = tree.euclidean_norm(wide)
        moved = tree.scale(shrink_factor(norm, weight(step, scale, norm)), wide)
        return tree.cast_like(moved, v)

    def scale_max(gradient):
        return tree.euclidean_norm(tree.floats(gradient))

    def distance(x, v, scale):
        x, v = tree.floats((x, v))
        size = tree.euclidean_norm(x)
        threshold = strength(scale, size)
        unit = tree.scale(threshold / jnp.where(size > 0, size, 1), x)
        return jnp.where(
            size > 0,
            tree.euclidean_norm(tree.sub(v, unit)),
            jnp.maximum(tree.euclidean_norm(v) - threshold, 0),
        )

    return Penalty(value, prox, scale_max, subdiff_distance=distance)


@factory
def l_inf() -> Penalty:
    r"""Return the largest absolute entry over all leaves, :math:`\psi(x) = \lambda \max_i |x_i|`.

    By Moreau's decomposition the prox is the residual of the projection onto an l1 ball:

    .. math:: \mathrm{prox}(v) = v - \mathrm{proj}_{|u|_1 \le t \lambda}(v)
      = \mathrm{clip}(v, -\theta, \theta)

    Entries are clipped to one level theta, which is 0 if :math:`|v|_1 \le t \lambda`.
    ``scale_max`` is the l1 norm of the gradient at zero.

    Example:
      >>> l_inf().prox(jnp.array([5.0, -1.0, 0.5]), step=1.0, scale=2.0).tolist()
      [3.0, -1.0, 0.5]

    References:
      Parikh and Boyd, "Proximal Algorithms", 2014, section 6.5.
    """

    def value(x, scale):
        return times_scale(scale, tree.max_abs(x))

    def prox(v, step, scale):
        return on_flat(lambda flat: l1_ball_residual(flat, weight(step, scale, flat)), v)

    def scale_max(gradient):
        return l1_norm(gradient)

    return Penalty(value, prox, scale_max)


class Groups(NamedTuple):
    """A partition of the entries into groups.

    Attributes:
      axis: each group is a slice of a leaf along this axis (or these); ``None`` if labelled.
      labels: the index of each entry's group, or ``None``.
      count: number of labelled groups.
    """

    axis: int | tuple[int, ...] | None
    labels: PyTree | None
    count: int

    def norms(self, x: PyTree) -> PyTree:
        """Return the norm of each group: an array per leaf, or one array for labelled groups."""
        if self.labels is None:
            return jax.tree.map(lambda leaf: norms_along_axis(leaf, self.axis), x)
        require_same_shapes(x, self.labels, "the labels of the groups")
        return norms_by_label(x, self.labels, self.count)

    def scale(self, factors: PyTree, x: PyTree) -> PyTree:
        """Multiply every entry by the factor of its group."""
        if self.labels is None:
            return jax.tree.map(lambda leaf, f: leaf * jnp.broadcast_to(f, leaf.shape), x, factors)
        return jax.tree.map(lambda leaf, label: leaf * factors[label], x, self.labels)

    def shrunk(self, x: PyTree, threshold: Callable[[Array], Array]) -> PyTree:
        """Subtract a threshold, computed for an array of norms, from the norm of every group."""

        def factor(norm):
            return shrink_factor(norm, jnp.broadcast_to(threshold(norm), norm.shape))

        return self.scale(jax.tree.map(factor, self.norms(x)), x)

    def subdiff_distance(self, x: PyTree, v: PyTree, scale: Scalar) -> Array:
        """Return the distance of v from the subdifferential of the sum of the norms at x."""
        x, v = tree.floats((x, v))
        sizes = self.norms(x)
        factors = jax.tree.map(
            lambda size: strength(scale, size) / jnp.where(size > 0, size, 1), sizes
        )
        nonzero = self.norms(tree.sub(v, self.scale(factors, x)))
        at_zero = self.norms(v)

        def group_distance(size, nonzero, at_zero):
            excess = jnp.maximum(at_zero - strength(scale, size), 0)
            return jnp.where(size > 0, nonzero, excess)

        return tree.euclidean_norm(jax.tree.map(group_distance, sizes, nonzero, at_zero))


def grouped(axis: int | tuple[int, ...] | None, labels: PyTree) -> Groups:
    """Return the groups of a penalty, from one of its two arguments."""
    if (axis is None) == (labels is None):
        raise ValueError(f"axis is {axis} and labels is {shown(labels)}; pass exactly one of them.")
    if labels is None:
        return Groups(axis, None, 0)
    labels = jax.tree.map(lambda label: checked_array("labels", label), labels)
    for label in jax.tree.leaves(labels):
        if label.size and (label.dtype.kind not in "iu" or label.min() < 0):
            raise ValueError(f"labels is {shown(label)}; pass integers from 0.")
    # Only the labels that occur count: memory does not grow with the largest.
    labels = jax.tree.map(lambda label: label.astype(np.uint64), labels)
    known = functools.reduce(np.union1d, jax.tree.leaves(labels), np.zeros(0, np.uint64))
    places = jax.tree.map(lambda label: np.searchsorted(known, label).astype(np.int32), labels)
    return Groups(None, places, known.size)


@factory
def group_l2(*, axis: int | tuple[int, ...] | None = None, labels: PyTree = None) -> Penalty:
    r"""Return the group lasso, :math:`\psi(x) = \lambda \sum_g |x_g|_2`, for disjoint groups.

    .. math:: \mathrm{prox}(v)_g = \max(1 - t \lambda / |v_g|_2, 0)\, v_g

    A group of norm at most :math:`t \lambda` becomes exactly zero. ``scale_max`` is the largest
    group norm of the gradient at zero.

    Args:
      axis: each group is a slice along this axis (or these). For a kernel of shape (inputs,
        outputs), ``axis=1`` groups the weights of each input.
      labels: alternatively, the index of each entry's group: integers from 0 with the structure
        and shapes of the points. Groups may contain entries of several leaves. ``on_subtree``
        passes a penalty the list of touched leaves, so there ``labels`` is a list too, with one
        array for each touched leaf.

    Example:
      >>> kernel = jnp.array([[3.0, 4.0], [0.6, 0.8]])
      >>> group_l2(axis=1).prox(kernel, step=1.0, scale=2.5).tolist()
      [[1.5, 2.0], [0.0, 0.0]]

      A linear model with an unpenalised bias, and features 0 and 1 in one group:

      >>> from fcojax.transforms import named, on_subtree
      >>> groups = on_subtree(group_l2(labels=[jnp.array([0, 0, 1])]), named("kernel"))
      >>> model = {"kernel": jnp.array([3.0, 4.0, 0.5]), "bias": jnp.array(2.0)}
      >>> groups.prox(model, step=1.0, scale=2.5)["kernel"].tolist()
      [1.5, 2.0, 0.0]

    References:
      Yuan and Lin, "Model selection and estimation in regression with grouped variables", 2006,
      with identity kernels, and without weights by group size.
    """
    groups = grouped(axis, labels)

    def value(x, scale):
        return times_scale(scale, tree.total(jax.tree.map(jnp.sum, groups.norms(x))))

    def prox(v, step, scale):
        moved = groups.shrunk(tree.floats(v), lambda norm: weight(step, scale, norm))
        return tree.cast_like(moved, v)

    def scale_max(gradient):
        return largest(groups.norms(tree.floats(gradient)))

    return Penalty(value, prox, scale_max, subdiff_distance=groups.subdiff_distance)


@factory
def sparse_group(
    l1_fraction: Fraction, *, axis: int | tuple[int, ...] | None = None, labels: PyTree = None
) -> Penalty:
    r"""Return the sparse group lasso, :math:`\lambda (r |x|_1 + (1 - r) \sum_g |x_g|_2)`.

    .. math:: \mathrm{prox} = \mathrm{prox}_{t \lambda (1 - r) \sum |x_g|_2} \circ
      \mathrm{soft}(\cdot, t \lambda r)

    Whole groups become exactly zero, and single entries of the other groups. ``scale_max`` has no
    closed form; it is found by bisection to the last bit.

    Args:
      l1_fraction: r, from 0 to 1.
      axis: each group is a slice along this axis (or these).
      labels: alternatively, the index of each entry's group, as for ``group_l2``.

    Example:
      >>> kernel = jnp.array([[5.5, 6.5, 0.5], [3.0, 2.5, 1.0]])
      >>> sparse_group(0.5, axis=1).prox(kernel, step=1.0, scale=5.0).tolist()
      [[1.5, 2.0, 0.0], [0.0, 0.0, 0.0]]

    References:
      Simon, Friedman, Hastie and Tibshirani, "A sparse-group lasso", 2013.
    """
    groups = grouped(axis, labels)

    def value(x, scale):
        absolute = l1_norm(x)
        joint = tree.total(jax.tree.map(jnp.sum, groups.norms(x)))
        return times_scale(scale, l1_fraction * absolute + (1 - l1_fraction) * joint)

    def prox(v, step, scale):
        def soft(leaf):
            return soft_threshold(leaf, l1_fraction * weight(step, scale, leaf))

        sparse = jax.tree.map(soft, tree.floats(v))
        moved = groups.shrunk(sparse, lambda norm: (1 - l1_fraction) * weight(step, scale, norm))
        return tree.cast_like(moved, v)

    def scale_max(gradient):
        gradient = tree.floats(gradient)

        def stays_zero(scale):
            sparse = jax.tree.map(lambda g: soft_threshold(g, l1_fraction * scale), gradient)
            return largest(groups.norms(sparse)) <= (1 - l1_fraction) * scale

        # At this scale one of the two norms alone makes zero optimal, so it bounds the interval.
        if l1_fraction >= 0.5:
            high = tree.max_abs(gradient) / l1_fraction
        else:
            high = largest(groups.norms(gradient)) / (1 - l1_fraction)
        return least_scale(stays_zero, high)

    def distance(x, v, scale):
        def sparse(leaf, slope):
            share = l1_fraction * strength(scale, leaf)
            kept = slope - share * jnp.sign(leaf)
            return jnp.where(leaf == 0, soft_threshold(slope, share), kept)

        rest = jax.tree.map(sparse, tree.floats(x), tree.floats(v))
        return groups.subdiff_distance(x, rest, (1 - l1_fraction) * scale)

    return Penalty(value, prox, scale_max, subdiff_distance=distance)
