"""The l1 norm, and soft thresholding."""

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.memo import memoised
from fcojax.transforms.penalty import Penalty, entrywise, strength, times_scale
from fcojax.types import Array, PyTree, Scalar


@memoised
def l1() -> Penalty:
    r"""Return the l1 norm, :math:`\psi(x) = \lambda \sum_i |x_i|`; ``scale`` is lambda.

    The prox is soft thresholding, leaf by leaf:

    .. math:: \mathrm{prox}(v)_i = \mathrm{sign}(v_i) \max(|v_i| - t \lambda, 0)

    Entries with :math:`|v_i| \le t \lambda` become exactly zero, so the support is ``x != 0``.
    ``scale_max`` is the largest entry of the gradient at zero in absolute value.

    Example:
      >>> l1().prox(jnp.array([3.0, 0.5]), step=1.0, scale=1.0).tolist()
      [2.0, 0.0]

    References:
      Parikh and Boyd, "Proximal Algorithms", 2014, section 6.5.
    """

    def value(x, scale):
        return times_scale(scale, l1_norm(x))

    def shrink(leaf, step, scale):
        return soft_threshold(leaf, step * scale)

    def prox(v, step, scale):
        return entrywise(shrink, v, step, scale)

    def subdiff_distance(x, v, scale):
        # The subdifferential is the interval [-scale, scale] at zero, and one point elsewhere.
        def excess(leaf, slope):
            level = strength(scale, leaf)
            from_point = slope - level * jnp.sign(leaf)
            return jnp.where(leaf == 0, soft_threshold(slope, level), from_point)

        return tree.euclidean_norm(jax.tree.map(excess, tree.floats(x), tree.floats(v)))

    return Penalty(value, prox, tree.max_abs, separable=True, subdiff_distance=subdiff_distance)


def l1_norm(x: PyTree) -> Array:
    """Return the sum of the absolute values over all leaves."""
    return tree.total(jax.tree.map(lambda leaf: jnp.sum(jnp.abs(leaf)), x))


def soft_threshold(v: Array, threshold: Scalar) -> Array:
    """Return ``sign(v) * max(|v| - threshold, 0)``, with exact zeros.

    The derivative is 0 wherever the result is 0, also at ``|v| == threshold > 0``; for a threshold
    of 0 it is 1 everywhere.

    Args:
      v: any array.
      threshold: a number of at least 0, or an array that broadcasts against v.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> fcojax.transforms.soft_threshold(jnp.array([3.0, -0.5, -2.0]), 1.0).tolist()
      [2.0, 0.0, -1.0]
    """
    dtype = jnp.result_type(v, float)  # the dtype of v, unless v has integers
    return _soft(jnp.asarray(v, dtype), jnp.asarray(threshold, dtype))


@jax.custom_jvp
def _soft(v, threshold):
    return v - jnp.clip(v, -threshold, threshold)


@_soft.defjvp
def _soft_jvp(primals, tangents):
    # The derivative of clip at a kink is 1/2 in JAX; a ``Penalty`` has that of the zero side.
    v, threshold = primals
    v_dot, threshold_dot = tangents
    outside = (jnp.abs(v) > threshold) | (threshold == 0)
    return _soft(v, threshold), jnp.where(outside, v_dot - jnp.sign(v) * threshold_dot, 0.0)
