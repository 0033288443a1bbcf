r"""The power p of the absolute value, for any p > 1.

The prox solves one scalar equation per entry. After scaling, the equation reads
:math:`a y^r + b y = 1` with :math:`\max(a, b) = 1` and r at least 1. The left side is convex and
increasing in y, so Newton's method from y = 1 decreases to the root and needs no safeguard.
"""

import functools
import math
from typing import Annotated

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.penalty import Penalty, entrywise, times_scale
from fcojax.transforms.subdifferentials import distance_to_intervals
from fcojax.types import Numbers

AboveOne = Annotated[float, Numbers("a finite number above 1", lambda values: values > 1)]


@factory
def lp_power(p: AboveOne) -> Penalty:
    r"""Return the power p of the absolute value, :math:`\psi(x) = \lambda \sum_i |x_i|^p`.

    .. math:: \mathrm{prox}(v)_i = \mathrm{sign}(v_i) u, \quad u + t \lambda p u^{p - 1} = |v_i|

    For p = 3/2, 2 and 3 the root has a closed form; otherwise Newton's method finds it to machine
    precision. Derivatives follow from the equation. The function is smooth, so no entry becomes
    exactly zero and ``scale_max`` is ``None``.

    Args:
      p: the exponent, above 1; use ``l1()`` for 1.

    Example:
      >>> lp_power(3).prox(jnp.array([4.0, -4.0]), step=1.0, scale=1.0).tolist()
      [1.0, -1.0]

    References:
      Chaux, Combettes, Pesquet and Wajs, "A variational formulation for frame-based inverse
      problems", 2007, which tabulates the closed forms.
    """
    p = float(p)

    def value(x, scale):
        return times_scale(
            scale, tree.total(jax.tree.map(lambda leaf: jnp.sum(jnp.abs(leaf) ** p), x))
        )

    def prox(v, step, scale):
        def shrink(leaf, step, scale):
            if p == 2.0:
                return leaf / (1 + 2 * (step * scale))
            return _shrunk(p, leaf, step * scale)

        return entrywise(shrink, v, step, scale)

    def subdiff_distance(x, v, scale):
        def slope(leaf, strength):
            return (p * strength * jnp.sign(leaf) * jnp.abs(leaf) ** (p - 1),) * 2

        return distance_to_intervals(slope, x, v, scale)

    return Penalty(value, prox, separable=True, subdiff_distance=subdiff_distance)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _shrunk(p, v, strength):
    """``sign(v) u`` for the u >= 0 with ``u + strength * p * u**(p - 1) == |v|``."""
    return jnp.sign(v) * _size(p, jnp.abs(v), strength)


def _size(p, size, strength):
    slope = p * strength
    if p == 1.5:  # y = sqrt(u) solves y^2 + slope y = size; in a form without cancellation
        half = 0.5 * slope
        unit = 1 / jnp.maximum(half, 1.0)  # divided by a large slope no square overflows
        below = half + jnp.sqrt((half * unit) ** 2 + size * unit * unit) / unit
        return (size / jnp.where(below > 0, below, 1.0)) ** 2
    if p == 3.0:
        inner = 1 + 4 * slope * size
        large = inner == jnp.inf  # take the root of each factor instead
        root = jnp.sqrt(jnp.where(large, size, inner)) * jnp.where(large, 2 * jnp.sqrt(slope), 1.0)
        return 2 * size / (1 + root)
    if p > 2.0:
        return _root(slope, jnp.ones_like(size), p - 1, size)
    r = 1 / (p - 1)  # the equation is convex in y = u^(p - 1)
    return _root(jnp.ones_like(size), slope, r, size) ** r


def _root(a, b, r, size):
    """The y >= 0 with ``a y**r + b y == size``, by Newton's method relative to an upper bound."""
    safe = jnp.where(size > 0, size, 1.0)
    by_power, by_line = safe ** (1 / r) / a ** (1 / r), safe / b  # roots for one term, or infinity
    bound = jnp.minimum(by_power, by_line)
    normal = bound > 0  # if the bound underflows, so does the root
    a = jnp.where(normal, bound / jnp.where(normal, by_power, 1.0), 1.0) ** r
    b = jnp.where(normal, bound / jnp.where(normal, by_line, 1.0), 1.0)

    def newton(_, y):
        term = a * y ** (r - 1)
        return y - (term * y + b * y - 1) / (r * term + b)

    # While y^r dominates, a step decreases y by y/r, so y^r by a factor e: log(r) steps. After that
    # convergence is quadratic: five steps from 1/2 to the last bit of a float64.
    num_steps = 6 + math.ceil(math.log(max(r, 1.0)))
    y = jax.lax.fori_loop(0, num_steps, newton, jnp.ones_like(size))
    return jnp.where(size > 0, bound * y, 0.0)


@_shrunk.defjvp
def _shrunk_jvp(p, primals, tangents):
    v, strength = primals
    v_dot, strength_dot = tangents
    x = _shrunk(p, v, strength)
    u = jnp.abs(x)
    # The slope is 1 / (1 + strength * p * (p - 1) * u**(p - 2)). With strength * p * u**(p - 1)
    # written as |v| - u, no power of u overflows.
    decrease = jnp.abs(v) - u
    at_zero = ((v == 0) & ((p > 2.0) | (strength == 0))).astype(v.dtype)
    slope = jnp.where(u > 0, u / (jnp.where(u > 0, u, 1.0) + (p - 1) * decrease), at_zero)
    factor = jnp.minimum(u ** (p - 1), jnp.finfo(u.dtype).max)  # 0 * inf would be NaN
    return x, slope * (v_dot - p * jnp.sign(v) * factor * strength_dot)
