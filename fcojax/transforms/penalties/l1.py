"""No penalty, and the l1 norm."""

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.transforms.floats import transform
from fcojax.transforms.penalty import (
    Penalty,
    checked,
    entrywise,
    l1_norm,
    max_abs,
    times_scale,
    weight,
)
from fcojax.transforms.stable_norms import euclidean_norm
from fcojax.transforms.subdifferentials import absolute_value_interval, distance_to_intervals
from fcojax.transforms.thresholds import soft_threshold


@transform
def zero() -> Penalty:
    """Return the zero penalty, whose prox is the identity.

    Example:
      >>> zero().prox(jnp.array([3.0, -1.0]), 1.0, 1.0).tolist()
      [3.0, -1.0]
    """

    def value(x, scale):
        del scale
        return tree.total(jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), x))

    def prox(v, step, scale):
        del step, scale
        return v

    def subdiff_distance(x, v, scale):
        del x, scale
        return euclidean_norm(v)

    return checked("zero", Penalty(value, prox, None, True, True, subdiff_distance))


@transform
def l1() -> Penalty:
    r"""Return the l1 norm, :math:`\psi(x) = \lambda \sum_i |x_i|`, with lambda as ``scale``.

    The prox is soft thresholding, leaf by leaf:

    .. math:: \mathrm{prox}(v)_i = \mathrm{sign}(v_i) \max(|v_i| - t \lambda, 0)

    Entries with :math:`|v_i| \le t \lambda` become exactly zero, so the support is ``x != 0``.
    ``scale_max`` is the largest entry of the gradient at zero in absolute value.

    Example:
      >>> l1().prox(jnp.array([3.0, 0.5]), step=1.0, scale=1.0).tolist()
      [2.0, 0.0]

    References:
      Parikh and Boyd, Proximal Algorithms, 2014, section 6.5.
    """

    def value(x, scale):
        return times_scale(scale, l1_norm(x))

    def prox(v, step, scale):
        def shrink(leaf, step):
            return soft_threshold(leaf, weight(step, scale, leaf))

        return entrywise(shrink, v, step)

    def scale_max(gradient):
        return max_abs(gradient)

    def subdiff_distance(x, v, scale):
        return distance_to_intervals(absolute_value_interval, x, v, scale)

    return checked("l1", Penalty(value, prox, scale_max, True, True, subdiff_distance))
