r"""Penalties: a convex function that is not smooth, and its prox.

A penalty is two pure functions. Its strength is an argument and not a field, so that it is traced
and can be swept; a factory fixes only functions and shapes.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.types import Params, Scalar


class Penalty(NamedTuple):
    r"""A function :math:`\psi(x; \lambda)` with a prox in closed form.

    Attributes:
      value: ``(x, scale) -> psi(x; scale)``. ``scale`` is the strength of a norm or the radius of
        a ball; an indicator answers 0 inside its set and infinity outside.
      prox: ``(v, step, scale) -> argmin_x step * psi(x; scale) + |x - v|^2 / 2``. An indicator
        projects at every step, zero included.
      scale_max: ``(gradient at zero) -> the least scale at which zero minimises f + psi``, or
        ``None`` where there is no such number.
      convex: whether psi is convex, so that its prox is nonexpansive and has a conjugate.
    """

    value: Callable[[Params, Scalar], jax.Array]
    prox: Callable[[Params, Scalar, Scalar], Params]
    scale_max: Callable[[Params], jax.Array] | None = None
    convex: bool = True


def zero() -> Penalty:
    """No penalty: the value is 0 and the prox is the identity.

    Example:
      >>> zero().prox(jnp.array([3.0, -1.0]), 1.0, 1.0).tolist()
      [3.0, -1.0]
    """

    def value(x, scale):
        del scale
        return tree.total(jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), x))

    return Penalty(value, prox=lambda v, step, scale: v)


def soft_threshold(v: jax.Array, threshold: Scalar) -> jax.Array:
    """``sign(v) * max(|v| - threshold, 0)``, written as one pass that keeps exact zeros."""
    threshold = jnp.asarray(threshold, v.dtype)
    return v - jnp.clip(v, -threshold, threshold)


def l1() -> Penalty:
    r"""The l1 norm, :math:`\psi(x) = \lambda \sum_i |x_i|`, with lambda given as ``scale``.

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
        absolute = tree.total(jax.tree.map(lambda leaf: jnp.sum(jnp.abs(leaf)), x))
        return jnp.asarray(scale, absolute.dtype) * absolute

    def prox(v, step, scale):
        return jax.tree.map(lambda leaf: soft_threshold(leaf, step * scale), v)

    def scale_max(gradient):
        largest = [jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(gradient) if leaf.size]
        return jnp.max(jnp.stack(largest))

    return Penalty(value, prox, scale_max)
