"""Separable penalties other than the l1 norm: none, squared l2 and elastic net.

Each prox is one elementwise pass. See ``lp_power`` for more.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
from jax.core import Tracer

from fcojax import tree
from fcojax.arguments import factory
from fcojax.memo import memoised
from fcojax.transforms.penalties.l1 import l1, soft_threshold
from fcojax.transforms.penalty import Penalty, entrywise, times_scale
from fcojax.transforms.subdifferentials import absolute_value_interval, distance_to_intervals
from fcojax.types import Numbers

Fraction = Annotated[float, Numbers("a number from 0 to 1", lambda x: (x >= 0) & (x <= 1))]


@memoised
def zero() -> Penalty:
    """Return the zero penalty, whose prox is the identity.

    Example:
      >>> zero().prox(jnp.array([3.0, -1.0]), 1.0, 1.0).tolist()
      [3.0, -1.0]
    """

    def value(x, scale):
        return tree.total(jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), x))

    def prox(v, step, scale):
        return v

    def subdiff_distance(x, v, scale):
        return tree.euclidean_norm(tree.floats(v))

    return Penalty(value, prox, separable=True, subdiff_distance=subdiff_distance)


@factory
def l2_squared() -> Penalty:
    r"""Return the squared l2 norm, :math:`\psi(x) = \lambda \sum_i x_i^2`, without a factor 1/2.

    .. math:: \mathrm{prox}(v) = v / (1 + 2 t \lambda)

    This is weight decay. No finite scale makes zero optimal, so ``scale_max`` is ``None``.

    Example:
      >>> import jax.numpy as jnp
      >>> l2_squared().prox(jnp.array([3.0, -6.0]), step=0.5, scale=2.0).tolist()
      [1.0, -2.0]
    """

    def value(x, scale):
        return times_scale(scale, tree.vdot(x, x))

    def prox(v, step, scale):
        return entrywise(lambda leaf, step, scale: leaf / (1 + 2 * (step * scale)), v, step, scale)

    def subdiff_distance(x, v, scale):
        return distance_to_intervals(lambda leaf, s: (2 * s * leaf,) * 2, x, v, scale)

    return Penalty(value, prox, separable=True, subdiff_distance=subdiff_distance)


@factory
def elastic_net(l1_fraction: Fraction) -> Penalty:
    r"""Return the elastic net, :math:`\psi(x) = \lambda (r |x|_1 + (1 - r) |x|_2^2)`.

    .. math:: \mathrm{prox}(v) = \mathrm{soft}(v, t \lambda r) / (1 + 2 t \lambda (1 - r))

    For separate strengths :math:`\lambda_1, \lambda_2` pass :math:`\lambda = \lambda_1 +
    \lambda_2` and :math:`r = \lambda_1 / \lambda`. ``scale_max`` is the largest absolute entry of
    the gradient at zero over r; it is ``None`` for r = 0.

    Args:
      l1_fraction: r, from 0 to 1.

    Example:
      >>> import jax.numpy as jnp
      >>> elastic_net(0.5).prox(jnp.array([3.0, 0.5]), step=1.0, scale=2.0).tolist()
      [0.6666666..., 0.0]

    References:
      Zou and Hastie, "Regularization and variable selection via the elastic net", 2005.
    """
    absolute, square = l1(), l2_squared()

    def value(x, scale):
        return times_scale(l1_fraction, absolute.value(x, scale)) + times_scale(
            1 - l1_fraction, square.value(x, scale)
        )

    def prox(v, step, scale):
        def shrink(leaf, step, scale):
            weight = step * scale
            denominator = 1 + 2 * (1 - l1_fraction) * weight
            return soft_threshold(leaf, l1_fraction * weight) / denominator

        return entrywise(shrink, v, step, scale)

    def scale_max(gradient):
        return tree.max_abs(gradient) / l1_fraction

    def subdiff_distance(x, v, scale):
        def interval(leaf, strength):
            smooth = 2 * (1 - l1_fraction) * strength * leaf
            low, high = absolute_value_interval(leaf, l1_fraction * strength)
            return low + smooth, high + smooth

        return distance_to_intervals(interval, x, v, scale)

    least_scale = scale_max if isinstance(l1_fraction, Tracer) or l1_fraction > 0 else None
    return Penalty(value, prox, least_scale, separable=True, subdiff_distance=subdiff_distance)
