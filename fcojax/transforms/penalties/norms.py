"""Norms of vectors and of groups of entries: l2, l-infinity, group lasso, sparse group lasso.

Unlike the l1 norm they tie entries together, so each says what it takes jointly.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.memo import memoised
from fcojax.transforms.lengths import length, lengths_along, lengths_by_label, quotient
from fcojax.transforms.penalties.separable import require_fraction
from fcojax.transforms.penalty import (
    Penalty,
    at_strength,
    checked,
    largest,
    require_shapes_of,
    strength,
    weight,
)
from fcojax.transforms.subdifferentials import off_largest
from fcojax.transforms.thresholds import off_l1_ball, soft_threshold
from fcojax.types import Array, PyTree, Scalar

_NUM_HALVINGS = 60  # of an interval at most twice its answer: past the last bit of a float64


def shrink_factor(norm: Array, threshold: Array) -> Array:
    """``max(1 - threshold / norm, 0)``; 1 for a threshold of 0, at a vector of norm 0 too."""
    outside = ~(norm <= threshold)  # a norm that is NaN stays NaN
    kept = 1 - quotient(threshold, jnp.where(outside, norm, 1.0))
    return jnp.where(outside, kept, jnp.where(threshold > 0, 0.0, 1.0))


@memoised
def l2() -> Penalty:
    r"""The Euclidean norm of all leaves jointly, :math:`\psi(x) = \lambda |x|_2`, not squared.

    .. math:: \mathrm{prox}(v) = \max(1 - t \lambda / |v|_2, 0)\, v

    The whole point becomes exactly zero once its norm is at most :math:`t \lambda`; unless that is
    0, the derivative there is 0, at equality too. ``scale_max`` is the norm of the gradient at
    zero.

    Example:
      >>> l2().prox(jnp.array([3.0, 4.0]), step=1.0, scale=2.5).tolist()
      [1.5, 2.0]

    References:
      Parikh and Boyd, Proximal Algorithms, 2014, section 6.5.
    """

    def value(x, scale):
        return at_strength(scale, length(x))

    def prox(v, step, scale):
        norm = length(v)
        return tree.scale(shrink_factor(norm, weight(step, scale, norm)), v)

    def subdiff_distance(x, v, scale):
        size = length(x)
        threshold = strength(scale, size)
        unit = tree.scale(threshold / jnp.where(size > 0, size, 1), x)
        return jnp.where(size > 0, length(tree.sub(v, unit)), jnp.maximum(length(v) - threshold, 0))

    return checked("l2", Penalty(value, prox, length, subdiff_distance=subdiff_distance))


@memoised
def l_inf() -> Penalty:
    r"""The largest absolute entry over all leaves, :math:`\psi(x) = \lambda \max_i |x_i|`.

    By Moreau's decomposition the prox is what the projection onto an l1 ball leaves over:

    .. math:: \mathrm{prox}(v) = v - \mathrm{proj}_{|u|_1 \le t \lambda}(v)
      = \mathrm{clip}(v, -\theta, \theta)

    The largest entries are cut to one level theta, which is 0 once :math:`|v|_1 \le t \lambda`.
    ``scale_max`` is the l1 norm of the gradient at zero.

    Example:
      >>> l_inf().prox(jnp.array([5.0, -1.0, 0.5]), step=1.0, scale=2.0).tolist()
      [3.0, -1.0, 0.5]

    References:
      Parikh and Boyd, Proximal Algorithms, 2014, section 6.5.
    """

    def value(x, scale):
        return at_strength(scale, largest(jax.tree.map(jnp.abs, x)))

    def prox(v, step, scale):
        flat, unravel = ravel_pytree(v)
        if flat.size == 0:
            return v
        return unravel(off_l1_ball(flat, weight(step, scale, flat)))

    def scale_max(gradient):
        return tree.total(jax.tree.map(lambda leaf: jnp.sum(jnp.abs(leaf)), gradient))

    def subdiff_distance(x, v, scale):
        flat, slope = ravel_pytree(x)[0], ravel_pytree(v)[0]
        if flat.size == 0:
            return jnp.zeros(())
        return off_largest(flat, slope, strength(scale, flat))

    return checked("l_inf", Penalty(value, prox, scale_max, subdiff_distance=subdiff_distance))


class Groups(NamedTuple):
    """How entries fall into groups: slices of each leaf by ``axis``, or any sets by ``labels``."""

    axis: int | tuple[int, ...] | None
    labels: PyTree | None
    count: int  # of labelled groups

    def norms(self, x: PyTree) -> PyTree:
        """The Euclidean norm of every group: one array per leaf, or one for all labels."""
        if self.labels is None:
            return jax.tree.map(lambda leaf: lengths_along(leaf, self._axis_of(leaf)), x)
        require_shapes_of(x, self.labels, "the labels of the groups")
        return lengths_by_label(x, self.labels, self.count)

    def scale(self, factors: PyTree, x: PyTree) -> PyTree:
        """Every entry times the factor of its group."""
        if self.labels is None:
            return jax.tree.map(lambda leaf, f: leaf * jnp.broadcast_to(f, leaf.shape), x, factors)
        return jax.tree.map(lambda leaf, label: leaf * factors[label], x, self.labels)

    def subdiff_distance(self, x: PyTree, v: PyTree, scale: Scalar) -> Array:
        """The distance of v from the subdifferential of the sum of the norms at x."""
        sizes = self.norms(x)
        factors = jax.tree.map(
            lambda size: strength(scale, size) / jnp.where(size > 0, size, 1), sizes
        )
        kept = self.norms(tree.sub(v, self.scale(factors, x)))
        at_zero = self.norms(v)

        def off(size, kept, at_zero):
            beyond = jnp.maximum(at_zero - strength(scale, size), 0)
            return jnp.where(size > 0, kept, beyond)

        return length(jax.tree.map(off, sizes, kept, at_zero))

    def _axis_of(self, leaf):
        axes = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        if not all(axis is not None and -leaf.ndim <= axis < leaf.ndim for axis in axes):
            raise ValueError(
                f"the groups run along axis {self.axis} but a leaf has shape {leaf.shape}; choose "
                "an axis that every leaf has, give labels, or use on_subtree."
            )
        return self.axis


def _groups(name, axis, labels):
    if (axis is None) == (labels is None):
        raise ValueError(
            f"{name} was given axis {axis} and labels {'none' if labels is None else 'too'}; pass "
            "exactly one of them."
        )
    if labels is None:
        return Groups(axis, None, 0)
    numbers = isinstance(labels, list) and jax.tree.leaves(labels)
    if numbers and all(isinstance(number, int) for number in numbers):
        alone = all(isinstance(entry, int) for entry in labels)
        advice = "jnp.array(labels)" if alone else "arrays in a list, as in [jnp.array([0, 0, 1])]"
        raise ValueError(f"{name} was given labels as lists of numbers; pass {advice}.")
    labels = jax.tree.map(np.asarray, labels)
    leaves = [label for label in jax.tree.leaves(labels) if label.size]
    for label in leaves:
        if label.dtype.kind not in "iu" or label.min() < 0:
            raise ValueError(
                f"{name} was given labels of dtype {label.dtype} with minimum {label.min()}; "
                "groups are numbered by integers from 0."
            )
    return Groups(None, labels, max((int(label.max()) + 1 for label in leaves), default=0))


@memoised
def group_l2(*, axis: int | tuple[int, ...] | None = None, labels: PyTree = None) -> Penalty:
    r"""The group lasso, :math:`\psi(x) = \lambda \sum_g |x_g|_2`, over groups without overlap.

    .. math:: \mathrm{prox}(v)_g = \max(1 - t \lambda / |v_g|_2, 0)\, v_g

    A group of norm at most :math:`t \lambda` becomes exactly zero, a zero group stays zero.
    ``scale_max`` is the largest group norm of the gradient at zero.

    Args:
      axis: each group runs along this axis (or these), and the other axes count the groups; for
        a kernel of shape (inputs, outputs), ``axis=1`` switches inputs on and off.
      labels: or the number of each entry's group, as integers from 0 with the structure and shapes
        of the points. Groups may reach across leaves. ``on_subtree`` shows a penalty the list
        of touched leaves, so there the labels are a list too, with one array a leaf.

    Example:
      >>> kernel = jnp.array([[3.0, 4.0], [0.6, 0.8]])
      >>> group_l2(axis=1).prox(kernel, step=1.0, scale=2.5).tolist()
      [[1.5, 2.0], [0.0, 0.0]]

      A linear model whose bias stays free, with features 0 and 1 in one group:

      >>> from fcojax.transforms import named, on_subtree
      >>> groups = on_subtree(group_l2(labels=[jnp.array([0, 0, 1])]), named("kernel"))
      >>> model = {"kernel": jnp.array([3.0, 4.0, 0.5]), "bias": jnp.array(2.0)}
      >>> groups.prox(model, step=1.0, scale=2.5)["kernel"].tolist()
      [1.5, 2.0, 0.0]

    References:
      Yuan and Lin, Model selection and estimation in regression with grouped variables, 2006,
      with identity kernels; we do not weight groups by size.
    """
    groups = _groups("group_l2", axis, labels)

    def value(x, scale):
        return at_strength(scale, tree.total(jax.tree.map(jnp.sum, groups.norms(x))))

    def prox(v, step, scale):
        factors = jax.tree.map(
            lambda norm: shrink_factor(
                norm, jnp.broadcast_to(weight(step, scale, norm), norm.shape)
            ),
            groups.norms(v),
        )
        return groups.scale(factors, v)

    def scale_max(gradient):
        return largest(groups.norms(gradient))

    distance = groups.subdiff_distance
    return checked("group_l2", Penalty(value, prox, scale_max, subdiff_distance=distance))


@memoised
def sparse_group(
    l1_fraction: float, *, axis: int | tuple[int, ...] | None = None, labels: PyTree = None
) -> Penalty:
    r"""The sparse group lasso, :math:`\psi(x) = \lambda (r |x|_1 + (1 - r) \sum_g |x_g|_2)`.

    .. math:: \mathrm{prox} = \mathrm{prox}_{t \lambda (1 - r) \sum |x_g|_2} \circ
      \mathrm{soft}(\cdot, t \lambda r)

    Groups vanish whole, and entries vanish inside groups that stay. ``scale_max`` has no closed
    form; it is found by halving to the last bit.

    Args:
      l1_fraction: r, between 0 and 1.
      axis: as in ``group_l2``.
      labels: as in ``group_l2``.

    Example:
      >>> kernel = jnp.array([[5.5, 6.5, 0.5], [3.0, 2.5, 1.0]])
      >>> sparse_group(0.5, axis=1).prox(kernel, step=1.0, scale=5.0).tolist()
      [[1.5, 2.0, 0.0], [0.0, 0.0, 0.0]]

    References:
      Simon, Friedman, Hastie and Tibshirani, A sparse-group lasso, 2013.
    """
    require_fraction(l1_fraction, "sparse_group")
    groups = _groups("sparse_group", axis, labels)

    def value(x, scale):
        absolute = tree.total(jax.tree.map(lambda leaf: jnp.sum(jnp.abs(leaf)), x))
        joint = tree.total(jax.tree.map(jnp.sum, groups.norms(x)))
        return at_strength(scale, l1_fraction * absolute + (1 - l1_fraction) * joint)

    def prox(v, step, scale):
        def soft(leaf):
            return soft_threshold(leaf, l1_fraction * weight(step, scale, leaf))

        def factor(norm):
            threshold = (1 - l1_fraction) * weight(step, scale, norm)
            return shrink_factor(norm, jnp.broadcast_to(threshold, norm.shape))

        thinned = jax.tree.map(soft, v)
        return groups.scale(jax.tree.map(factor, groups.norms(thinned)), thinned)

    def scale_max(gradient):
        def stays_zero(scale):
            thinned = jax.tree.map(lambda g: soft_threshold(g, l1_fraction * scale), gradient)
            return largest(groups.norms(thinned)) <= (1 - l1_fraction) * scale

        def halve(_, bounds):
            low, high = bounds
            middle = 0.5 * (low + high)
            enough = stays_zero(middle)
            return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

        # Either norm alone suffices at this strength, and the larger share is at least 1/2.
        if l1_fraction >= 0.5:
            high = largest(jax.tree.map(jnp.abs, gradient)) / l1_fraction
        else:
            high = largest(groups.norms(gradient)) / (1 - l1_fraction)
        return jax.lax.fori_loop(0, _NUM_HALVINGS, halve, (jnp.zeros_like(high), high))[1]

    def subdiff_distance(x, v, scale):
        def thinned(leaf, slope):
            share = l1_fraction * strength(scale, leaf)
            kept = slope - share * jnp.sign(leaf)
            return jnp.where(leaf == 0, soft_threshold(slope, share), kept)

        rest = jax.tree.map(thinned, x, v)
        return groups.subdiff_distance(x, rest, (1 - l1_fraction) * scale)

    return checked(
        "sparse_group", Penalty(value, prox, scale_max, subdiff_distance=subdiff_distance)
    )
